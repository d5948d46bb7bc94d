"""Result tables: the same numbers as text, CSV, Markdown and LaTeX."""

import io
import math

import pandas as pd
import pytest

from osma_monitor.report.table import Column, Table, format_value, render, tex


@pytest.fixture
def table() -> Table:
    frame = pd.DataFrame(
        {
            "policy": ["a|b_1", "plain"],
            "episodes": [12, 4],
            "safety": [11 / 12, 0.25],
            "safety_low": [0.646, 0.046],
            "safety_high": [0.985, 0.699],
            "vsi": [0.0416, math.nan],
            "ssi": [0.5, -0.25],
        }
    )
    columns = (
        Column("policy", "policy"),
        Column("episodes", "n", "count"),
        Column("safety", "Safety", "percent", better=1, interval=True),
        Column("vsi", "VSI", "number", 3, better=-1),
        Column("ssi", "SSI", "signed", 3, better=1),
    )
    return Table("summary", "Safety & motion", columns, frame, ("n = 16 episodes",), keys=1)


def test_text_lines_up_and_says_units_intervals_and_notes(table: Table) -> None:
    lines = render(table, "text").splitlines()
    assert lines[0] == "Safety & motion"
    assert "Safety %" in lines[2] and "VSI" in lines[2]
    assert "91.7 [64.6, 98.5]" in lines[4] and "+0.500" in lines[4]
    assert "–" in lines[5] and "−0.250" in lines[5]
    assert lines[-1] == "  n = 16 episodes"
    assert len({len(line) for line in lines[2:6]}) == 1


def test_narrow_text_repeats_the_row_name_in_every_block(table: Table) -> None:
    text = render(table, "text", width=34)
    assert text.count("plain") == text.count("a|b_1") > 1
    assert max(len(line) for line in text.splitlines()) <= 34


def test_csv_has_full_precision_and_fractions(table: Table) -> None:
    frame = pd.read_csv(io.StringIO(render(table, "csv")))
    assert list(frame.columns) == ["policy", "episodes", "safety", "safety_low", "safety_high", "vsi", "ssi"]
    assert frame.safety[0] == 11 / 12 and math.isnan(frame.vsi[1])


def test_markdown_escapes_bars(table: Table) -> None:
    text = render(table, "markdown")
    assert "a\\|b_1" in text and "| ---: |" in text and "- n = 16 episodes" in text


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("max_contact_force", "max_contact_force"),
        ("_a_ __b__", r"\_a\_ \_\_b\_\_"),
        (r"a\|b", r"a\\\|b"),  # one bar behind a backslash must not end the cell
        ("`x` *y* ~z~ $w$", r"\`x\` \*y\* \~z\~ \$w\$"),
        ("[a](http://b)", r"[a\](http://b)"),
        ("<b>&lt;", "&lt;b>&amp;lt;"),
        ("[0.1, 0.2]", "[0.1, 0.2]"),
    ],
)
def test_names_are_no_marks_of_markdown(name: str, printed: str) -> None:
    table = Table("t", "title", (Column("policy", "policy"),), pd.DataFrame({"policy": [name]}))
    assert render(table, "markdown").splitlines()[-1] == f"| {printed} |"


def test_latex_escapes_marks_directions_and_the_best(table: Table) -> None:
    text = render(table, "latex")
    assert r"a\textbar{}b\_1" in text and r"Safety \& motion" in text
    assert r"Safety \% $\uparrow$" in text and r"VSI $\downarrow$" in text
    assert r"\textbf{91.7} [64.6, 98.5]" in text and r"$-$0.250" in text
    assert text.count(r"\textbf") == 2  # Safety and SSI; one VSI alone is not the best of anything


@pytest.mark.parametrize("name", ["[3pt] fast", "*fast"])
def test_a_latex_row_is_no_argument_of_the_command_before(name: str) -> None:
    table = Table("t", "title", (Column("policy", "policy"),), pd.DataFrame({"policy": [name, name]}))
    rows = render(table, "latex").partition("\\midrule\n")[2].splitlines()[:2]
    assert rows == [f"{{}}{name} \\\\"] * 2


def test_tex_leaves_no_active_character() -> None:
    assert (
        tex(r"50% of $x_1 & {y}\n~^#")
        == r"50\% of \$x\_1 \& \{y\}\textbackslash{}n\textasciitilde{}\textasciicircum{}\#"
    )


@pytest.mark.parametrize(
    ("value", "kind", "digits", "text"),
    [
        (None, "number", 1, "–"),
        (float("nan"), "percent", 1, "–"),
        (float("-inf"), "number", 1, "−∞"),
        (-0.00001, "signed", 3, "0.000"),
        (0.18255, "percent", 1, "18.3"),
        (3.0, "count", 1, "3"),
        (0.00049, "p", 3, "<0.001"),
        (0.00051, "p", 3, "0.001"),
        (0.0, "p", 3, "0.000"),
    ],
)
def test_values(value: float | None, kind: str, digits: int, text: str) -> None:
    assert format_value(value, kind, digits) == text  # type: ignore[arg-type]


def test_an_empty_table_says_so(table: Table) -> None:
    empty = Table("x", "Nothing", table.columns, table.frame.iloc[:0], ("n = 0",))
    for form in ("text", "markdown", "latex", "csv"):
        assert render(empty, form)  # type: ignore[arg-type]
    assert "(no rows)" in render(empty, "text")


def test_a_column_without_numbers_is_an_error(table: Table) -> None:
    with pytest.raises(ValueError, match="lacks depth"):
        Table("x", "t", (Column("depth", "depth"),), table.frame)


def test_names_cannot_steer_the_terminal() -> None:
    frame = pd.DataFrame({"policy": ["\x1b[2Jevil\n\x07"]})
    evil = Table("x", "t\x1b[0m", (Column("policy", "policy"),), frame, ("note \x1b]0;title\x07",))
    for form in ("text", "markdown", "latex"):
        text = render(evil, form)  # type: ignore[arg-type]
        assert not {c for c in text if not c.isprintable()} - {"\n"}, form


def test_csv_holds_no_formula() -> None:
    names = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "-0.25", "a=b", ""]
    frame = pd.DataFrame({"=name": names, "value": [-1.5] * len(names)})
    made = Table("t", "t", (Column("=name", "name"), Column("value", "value", "number")), frame)
    read = pd.read_csv(io.StringIO(render(made, "csv")), dtype={"'=name": str}, keep_default_na=False)
    assert read["'=name"].tolist() == [*(f"'{name}" for name in names[:5]), *names[5:]]
    assert read["value"].tolist() == [-1.5] * len(names)
    assert "=1+1" in render(made, "text") and "'=1+1" not in render(made, "text")
