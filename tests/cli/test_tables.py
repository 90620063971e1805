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


def test_a_long_cell_stays_in_one_line_so_that_scripts_find_it() -> None:
    reason = "UNAVAILABLE: Internal: " + "word " * 60
    assert f"| a     | {reason.strip()} |" in table(("Model", "Status"), [("a", reason)]).splitlines()


def test_a_cell_of_several_lines_goes_on_below_and_keeps_its_indentation() -> None:
    drawn = table(("Model", "Status"), [("b", "one\n\n  two\tthree")])
    assert drawn.splitlines()[3:-1] == [
        "| b     | one            |",
        "|       |                |",
        r"|       |   two\x09three |",
    ]


def test_control_characters_are_written_out() -> None:
    assert r"\x1b[2J" in table(("Status",), [("\x1b[2J",)])
