"""Diagrams of the server: its parts, dynamic batching, sequences."""

from scripts.diagrams.drawing import Drawing


def architecture() -> Drawing:
    """The parts of a server, and the way of a request through them."""
    picture = Drawing(
        760,
        380,
        "The parts of a server",
        "Clients reach the front ends over HTTP and gRPC. The engine queues requests and forms batches, which "
        "instances run: on threads of the server, or in worker processes. The lifecycle loads models.",
    )
    picture.box(20, 70, 110, 60, ["Clients", "curl, tritonclient"], "blue")
    picture.group(170, 30, 570, 240, "the server's process: one event loop")
    picture.box(190, 50, 130, 40, ["HTTP :8000"])
    picture.box(190, 100, 130, 40, ["gRPC :8001"])
    picture.box(190, 210, 130, 44, ["Metrics :8002"])
    picture.text(190, 158, "front ends: bytes become", style="small")
    picture.text(190, 173, "tensors, and back", style="small")
    picture.group(355, 50, 205, 205, "engine")
    picture.box(370, 65, 175, 36, ["Validation, cache"], "green")
    picture.box(370, 119, 175, 48, ["Scheduler", "queue, batches, sequences"], "green")
    picture.box(370, 200, 175, 44, ["Lifecycle", "versions, memory budget"], "green")
    picture.box(600, 65, 125, 48, ["Instances", "on the loop, threads"], "orange")
    picture.box(600, 127, 125, 44, ["Instances", "proxies of workers"], "orange")
    picture.arrow((130, 90), (188, 72))
    picture.arrow((130, 108), (188, 120))
    picture.arrow((320, 70), (368, 80))
    picture.arrow((320, 120), (368, 90))
    picture.arrow((457, 101), (457, 117))
    picture.arrow((545, 136), (598, 95))
    picture.arrow((545, 146), (598, 148))
    picture.arrow((457, 200), (457, 169))
    picture.text(463, 189, "starts and ends", style="small")
    picture.box(370, 305, 175, 50, ["Model repository", "directories or buckets"], "blue")
    picture.arrow((457, 303), (457, 246))
    picture.box(590, 305, 150, 50, ["Worker processes", "Python, isolated models"], "orange")
    picture.arrow((662, 171), (662, 303))
    picture.text(656, 288, "socket, shared memory", style="small", anchor="end")
    return picture


def batching() -> Drawing:
    """Requests that wait while an instance is busy become its next batch."""
    picture = Drawing(
        760,
        230,
        "Dynamic batching over time",
        "One request arrives and runs alone. Four arrive while it runs, and become the next batch; three that arrive "
        "meanwhile become the batch after that.",
    )
    picture.text(20, 50, "Requests")
    picture.text(20, 65, "arrive", style="small")
    picture.text(20, 160, "Instance")
    picture.text(20, 175, "executes", style="small")
    batches = [(110, 130, "1", "blue"), (240, 190, "2–5", "green"), (430, 170, "6–8", "orange")]
    arrivals = (
        [(110, "blue")],
        [(135, "green"), (160, "green"), (185, "green"), (215, "green")],
        [
            (275, "orange"),
            (320, "orange"),
            (375, "orange"),
        ],
    )
    number = 0
    for (start, width, requests, kind), group in zip(batches, arrivals, strict=True):
        for x, _ in group:
            number += 1
            picture.box(x, 34, 22, 26, [str(number)], kind)
        rows = len(group)
        picture.box(
            start,
            140,
            width,
            48,
            [
                f"batch of {rows}" if rows > 1 else "one row",
                f"request {requests}" if rows == 1 else f"requests {requests}",
            ],
            kind,
        )
    picture.arrow((121, 62), (121, 138))
    picture.line((135, 70), (237, 70))
    picture.arrow((237, 70), (246, 138))
    picture.line((275, 70), (397, 70))
    picture.arrow((397, 70), (436, 138))
    picture.text(140, 88, "wait in the queue", style="small")
    picture.text(280, 88, "wait in the queue", style="small")
    picture.arrow((100, 212), (720, 212))
    picture.text(722, 216, "time", style="small")
    picture.text(620, 150, "An idle instance takes", style="small")
    picture.text(620, 165, "at once what there is.", style="small")
    return picture


def sequences() -> Drawing:
    """Requests of a sequence go to the same slot of the same instance."""
    picture = Drawing(
        760,
        300,
        "Sequences and slots",
        "Each sequence has a slot of an instance until it ends. Requests of one sequence run in order in its slot; "
        "the slots of an instance are the rows of its batches. A sequence for which no slot is free waits.",
    )
    for row, (name, kind, flags) in enumerate(
        [
            ("sequence 7", "blue", ["START", "", "END"]),
            ("sequence till-3", "green", ["START", "", ""]),
            ("sequence 12", "orange", ["START", "END"]),
            ("sequence 40", "plain", ["START", ""]),
        ]
    ):
        y = 40 + row * 62
        picture.text(20, y - 6, name, style="small")
        for column, flag in enumerate(flags):
            picture.box(20 + (len(flags) - 1 - column) * 62, y, 56, 30, [flag or "…"], kind)
    picture.text(20, 290, "the first request is on the right", style="small")
    picture.group(330, 40, 180, 100, "instance 0: two slots")
    picture.box(345, 52, 150, 34, ["slot 0: sequence 7"], "blue")
    picture.box(345, 96, 150, 34, ["slot 1: till-3"], "green")
    picture.group(330, 172, 180, 56, "instance 1: two slots")
    picture.box(345, 182, 70, 34, ["12"], "orange")
    picture.box(425, 182, 70, 34, ["free"])
    picture.arrow((206, 55), (343, 68))
    picture.arrow((206, 117), (343, 113))
    picture.arrow((144, 179), (343, 198))
    picture.arrow((144, 241), (460, 252), (460, 218))
    picture.text(300, 268, "a new sequence takes a free slot; without one it waits", style="small")
    picture.box(580, 66, 160, 50, ["one batch", "a row for each slot"], "plain")
    picture.arrow((510, 90), (578, 90))
    picture.text(580, 138, "The state of a sequence", style="small")
    picture.text(580, 153, "stays with its slot.", style="small")
    return picture
