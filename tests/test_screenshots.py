"""The script that draws the README's pictures."""

import re

import pytest

from docs import screenshots


def test_a_picture_that_is_not_known_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("sys.argv", ["docs.screenshots", "app", "app-tabel", "<b>"])
    allowed = ", ".join(picture.__name__ for picture in screenshots.PICTURES)

    with pytest.raises(SystemExit, match=f"^picture: got app-tabel, <b>, allowed is {re.escape(allowed)}$"):
        screenshots.main()


def test_every_picture_of_the_app_has_its_file():
    for picture in screenshots.PICTURES:
        assert (screenshots.HERE / f"{picture.__name__.replace('_', '-')}.png").is_file()
