"""The activities that are remembered: so many of each variant and of each account and region, for six weeks."""

from collections import Counter
from collections.abc import Iterator, Sequence

from halimede.hosting.control.database import Database, DocumentKey
from halimede.hosting.identity import Scope
from halimede.hosting.scaling.activity import Activity
from halimede.hosting.scaling.names import VariantId

KEPT_S = 6 * 7 * 86_400
"""How long AWS remembers activities."""

OF_A_VARIANT = 500
OF_A_SCOPE = 10_000
"""How many are remembered at most."""

_KIND = "activity"


class Activities:
    """All activities, on disk and here. Lives on the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._of: dict[Scope, dict[int, Activity]] = {}  # by number, in order
        self._counts: Counter[VariantId] = Counter()
        self._open: dict[VariantId, Activity] = {}
        self._latest: dict[VariantId, Activity] = {}
        self._number = 0

    async def load(self) -> None:
        """Read those that were kept."""
        found = []
        for key, document in (await self._database.documents(_KIND)).items():
            variant = VariantId.of(key.scope, document["variant"])
            found.append(Activity.from_document(variant, document))
        for activity in sorted(found, key=lambda each: each.number):
            self._keep(activity)
            self._number = max(self._number, activity.number)

    def next_number(self) -> int:
        """The number of a new activity."""
        self._number += 1
        return self._number

    def _keep(self, activity: Activity) -> None:
        of = self._of.setdefault(activity.variant.scope, {})
        if activity.number not in of:
            self._counts[activity.variant] += 1
        of[activity.number] = activity
        latest = self._latest.get(activity.variant)
        if latest is None or latest.number <= activity.number:
            self._latest[activity.variant] = activity
        current = self._open.get(activity.variant)
        if not activity.is_over:
            self._open[activity.variant] = activity
        elif current is not None and current.number == activity.number:
            del self._open[activity.variant]

    async def put(self, activity: Activity) -> None:
        """Remember an activity, or what has become of it; others that are too many or too old are forgotten.

        Raises:
            ApiError: it cannot be written; then nothing has changed.
        """
        await self._database.put(_key(activity), activity.document())
        is_new = activity.number not in self._of.get(activity.variant.scope, {})
        self._keep(activity)
        if is_new:
            for each in self._excess(activity):
                await self._forget(each)

    def _excess(self, newest: Activity) -> list[Activity]:
        """What is to be forgotten since there is a new one."""
        of = self._of[newest.variant.scope]
        over = [each for each in of.values() if each.is_over]
        excess = [each for each in over if each.started < newest.started - KEPT_S]
        if self._counts[newest.variant] > OF_A_VARIANT:
            excess += _least_wanted([each for each in over if each.variant == newest.variant])
        if len(of) > OF_A_SCOPE:
            excess += _least_wanted(over)
        return list({each.number: each for each in excess}.values())

    async def _forget(self, activity: Activity) -> None:
        await self._database.remove(_key(activity), "")
        del self._of[activity.variant.scope][activity.number]
        self._counts[activity.variant] -= 1
        if not self._counts[activity.variant]:
            del self._counts[activity.variant], self._latest[activity.variant]

    def of(self, scope: Scope, now: float) -> Iterator[Activity]:
        """Those of an account and region, the newest first."""
        for activity in reversed(self._of.get(scope, {}).values()):
            if activity.started >= now - KEPT_S:
                yield activity

    def latest(self, variant: VariantId) -> Activity | None:
        """The newest one of a variant."""
        return self._latest.get(variant)

    def unfinished(self, variant: VariantId) -> Activity | None:
        """The change of a variant that goes on."""
        return self._open.get(variant)

    def all_unfinished(self) -> Sequence[Activity]:
        """All changes that go on."""
        return list(self._open.values())


def _least_wanted(activities: Sequence[Activity]) -> Sequence[Activity]:
    """The first of those that changed nothing, or else of all."""
    return [each for each in activities if each.reasons][:1] or activities[:1]


def _key(activity: Activity) -> DocumentKey:
    return DocumentKey(_KIND, *activity.variant.scope, f"{activity.number:015d}")
