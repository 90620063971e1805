"""Diagrams of the host: models of an endpoint that come and go, and a deployment with a canary."""

from scripts.diagrams.drawing import Drawing


def residency() -> Drawing:
    """Which instance of a multi-model endpoint holds which model."""
    picture = Drawing(
        760,
        280,
        "Models of a multi-model endpoint",
        "A request names its model. An instance that holds the model answers. If none does, one fetches the archive "
        "and loads it, and a model that was asked for least often makes room.",
    )
    picture.box(20, 50, 120, 44, ["Request", "TargetModel: c"], "orange")
    picture.box(200, 50, 130, 130, ["Router", "knows who holds", "which model"], "green")
    picture.group(420, 40, 310, 62, "instance 1: memory budget")
    for number, (name, kind) in enumerate([("a", "blue"), ("b", "blue"), ("d", "blue")]):
        picture.box(432 + number * 98, 52, 90, 38, [name], kind)
    picture.group(420, 140, 310, 84, "instance 2: memory budget")
    picture.box(432, 152, 90, 38, ["a"], "blue")
    picture.box(530, 152, 90, 38, ["c"], "orange")
    picture.box(628, 152, 90, 38, ["e"], "red")
    picture.text(530, 210, "3 loaded", style="small")
    picture.text(628, 210, "2 makes room", style="small")
    picture.arrow((140, 72), (198, 90))
    picture.arrow((330, 90), (418, 72))
    picture.arrow((330, 140), (418, 172))
    picture.text(338, 62, "for a, b, d", style="small")
    picture.text(338, 132, "for c", style="small")
    picture.box(200, 220, 130, 44, ["Archives", "c.tar.gz in a bucket"], "blue")
    picture.arrow((330, 242), (575, 242), (575, 216))
    picture.text(345, 236, "1 fetched, once for the machine", style="small")
    return picture


def deployment() -> Drawing:
    """A canary, in steps from the old fleet to the new one."""
    picture = Drawing(
        760,
        320,
        "A deployment with a canary",
        "The new fleet starts beside the old one, gets a quarter of the requests while alarms are watched, and then "
        "all of them. If an alarm goes off, all requests go back to the old fleet.",
    )
    steps = [
        (110, "Start", 100, "the new fleet gets ready"),
        (270, "Canary", 75, "alarms are watched"),
        (430, "All", 0, "alarms are watched"),
        (590, "Done", None, "the old fleet ends"),
    ]
    picture.text(20, 90, "Old fleet", style="title")
    picture.text(20, 180, "New fleet", style="title")
    for x, name, old, text in steps:
        picture.text(x + 65, 36, name, style="title", anchor="middle")
        picture.text(x + 65, 52, text, style="small", anchor="middle")
        if old is not None:
            picture.box(x, 65, 130, 42, [f"{old} % of requests"], "blue" if old else "plain")
        picture.box(
            x, 155, 130, 42, [f"{100 - (old or 0)} % of requests"], "green" if old != 100 else "plain"
        )
    for x in (240, 400, 560):
        picture.arrow((x + 2, 131), (x + 28, 131))
    picture.box(350, 240, 130, 42, ["An alarm goes off"], "red")
    picture.arrow((335, 199), (335, 220), (385, 220), (385, 238))
    picture.arrow((495, 199), (495, 220), (445, 220), (445, 238))
    picture.arrow((350, 261), (98, 261), (98, 86), (108, 86))
    picture.text(
        110, 304, "rolled back: all requests go to the old fleet, and the new one ends", style="small"
    )
    return picture
