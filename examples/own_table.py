"""A private bandit over your own table: a column per option, a row per recorded person."""

from pathlib import Path

import tacit

Path("clicks.csv").write_text("blue,green\n" + "0,1\n1,1\n0,0\n" * 500)
result = tacit.simulate("private-klucb", tacit.read_table("clicks.csv"), epsilon=1.0, runs=3)
print(result.summary()["winner"], result.configuration["people"])
