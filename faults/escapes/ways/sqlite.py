"""Write a database with its journal."""

import sqlite3

from way import TREE, attempt

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    with sqlite3.connect(TREE / "work/new.db") as database:
        database.execute("create table runs (name)")
        database.execute("insert into runs values ('EVIL')")


attempt(do)
