"""What all plots keep to: few series, a colour each, and texts that do not overlap."""

from itertools import combinations

import pytest

pytest.importorskip("matplotlib")
from bitsynth.bench.plots.panels import COLORS, MAX_SERIES, draw_bars, label_points, panels, save


@pytest.mark.parametrize(("count", "written"), [(MAX_SERIES, True), (MAX_SERIES + 1, False)])
def test_a_panel_has_few_series(tmp_path, count, written):
    figure, ((axes,),) = panels(1, 1, 4, 3)
    for n in range(count):
        draw_bars(axes, [0, 1], [1, 2], n, count, label=f"series {n}")
    if written:
        save(figure, tmp_path / "plot")
    else:
        with pytest.raises(ValueError, match=f"a colour for each of at most {MAX_SERIES} series"):
            save(figure, tmp_path / "plot")
    assert (tmp_path / "plot.png").exists() == written


def test_no_two_series_have_one_colour(tmp_path):
    figure, ((axes,),) = panels(1, 1, 4, 3)
    for label in ("one", "two"):
        axes.plot([1, 2], [1, 2], "o", color=COLORS[0], label=label)
    with pytest.raises(ValueError, match="a colour for each"):
        save(figure, tmp_path / "plot")


def test_texts_of_points_do_not_overlap():
    """Not even where points crowd in a corner; a text without room is left out."""
    figure, ((axes,),) = panels(1, 1, 4, 3)
    points = [(x / 20, y / 20, f"point {x} {y}") for x in range(5) for y in range(5)] + [(1.0, 1.0, "apart")]
    axes.plot([x for x, *_ in points], [y for _, y, _ in points], "o")
    label_points(axes, points)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert "apart" in [text.get_text() for text in axes.texts]
    assert 1 < len(boxes) < len(points)
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
