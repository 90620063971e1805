from halimede.cli.tables import table


def test_a_table_is_framed_and_aligned() -> None:
    drawn = table(("Model", "Version", "Status"), [("a", "1", "READY"), ("longer", "12", "UNAVAILABLE")])
    assert drawn == "\n".join(
        [
            "+--------+---------+-------------+",
            "| Model  | Version | Status      |",
            "+--------+---------+-------------+",
            "| a      | 1       | READY       |",
            "| longer | 12      | UNAVAILABLE |",
            "+--------+---------+-------------+",
        ]
    )


def test_a_table_without_rows_has_its_headings() -> None:
    assert table(("Model",), []) == "+-------+\n| Model |\n+-------+\n+-------+"


def test_long_and_broken_cells_go_on_below() -> None:
    drawn = table(("Model", "Status"), [("a", "word " * 30), ("b", "one\ntwo")])
    assert all(len(line) < 130 for line in drawn.splitlines())
    assert "| b     | one " in drawn
    assert "|       | two " in drawn


def test_control_characters_are_written_out() -> None:
    assert r"\x1b[2J" in table(("Status",), [("\x1b[2J",)])
