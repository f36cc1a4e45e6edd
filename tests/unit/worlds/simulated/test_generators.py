"""Generated workloads: the same text gives the same jobs, and the distributions are those of the models."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import fmean, median, pstdev

import pytest

from pilothouse.model.errors import InputError
from pilothouse.worlds.simulated.generators import DAY_S, GENERATORS, check, generate, is_generated, with_seed


def rows(text: str, units: int = 128) -> list[tuple[object, ...]]:
    return [(job.id, job.units, job.submitted_at, job.runtime, job.walltime, job.user) for job in generate(text, units).jobs]


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_text_gives_the_same_jobs(name: str) -> None:
    first = rows(f"{name}:jobs=50,seed=3")
    assert first == rows(f"{name}:seed=3,jobs=50") != rows(f"{name}:jobs=50,seed=4")
    assert rows(name) == rows(f"{name}:jobs=1000,seed=0") and len(rows(name)) == 1000


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("units", [1, 2, 3, 100, 128, 5000])
def test_jobs_make_sense_on_every_machine(name: str, units: int) -> None:
    made = generate(f"{name}:jobs=300,overestimate=3", units)
    assert made.jobs[0].submitted_at == 0.0 and made.units == units
    for job in made.jobs:
        assert 1 <= job.units <= units and job.runtime and job.runtime < job.walltime <= 3 * job.runtime + 2
    assert all(a.submitted_at <= b.submitted_at for a, b in pairwise(made.jobs))
    assert made.oddities == {"walltime invented: the run time times 1 to 3 and a second": 300}
    assert all(job.units <= 2 for job in generate(f"{name}:jobs=50,widest=2", units).jobs)


@pytest.mark.parametrize("name", GENERATORS)
def test_the_load_is_what_was_asked_for(name: str) -> None:
    jobs = generate(f"{name}:jobs=2000,load=0.7", 100).jobs
    work = sum(job.units * (job.runtime or 0.0) for job in jobs)
    assert work / (100 * jobs[-1].submitted_at) == pytest.approx(0.7, rel=0.01)


def test_lublin_and_feitelson() -> None:
    """Shares and quantiles of the published model for 128 nodes; arrivals follow the day."""
    jobs = generate("lublin:jobs=6000", 128).jobs
    sizes = Counter(job.units for job in jobs)
    assert sizes[1] / len(jobs) == pytest.approx(0.244, abs=0.02)
    powers = sum(sizes[1 << exponent] for exponent in range(1, 8)) / len(jobs)
    assert 0.576 < powers < 0.75, "those drawn as powers of two, and those that are by chance"
    small = [job.runtime or 0.0 for job in jobs if job.units == 1]
    large = [job.runtime or 0.0 for job in jobs if job.units >= 64]
    assert 60 < median(small) < 160 and median(large) > 5 * median(small)
    hours = Counter(int(job.submitted_at % DAY_S // 3600) for job in jobs)
    assert sum(hours[hour] for hour in range(9, 18)) > 3 * sum(hours[hour] for hour in range(9))
    gap = jobs[-1].submitted_at / len(jobs)
    assert 300 < gap < 900


def test_poisson_and_bursts() -> None:
    jobs = generate("poisson:jobs=5000,runtime=600", 64).jobs
    gaps = [b.submitted_at - a.submitted_at for a, b in pairwise(jobs)]
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(1.0, abs=0.1)
    assert fmean([job.runtime or 0.0 for job in jobs]) == pytest.approx(600, rel=0.1)
    assert set(Counter(job.units for job in jobs)) == {1, 2, 4, 8, 16, 32, 64}
    burst = Counter((job.user, job.submitted_at, job.units) for job in generate("bursts:jobs=3000,size=15", 64).jobs)
    assert fmean(burst.values()) == pytest.approx(15, rel=0.3), "jobs of a burst share user, date and size"
    single = generate("bursts:jobs=40,size=1", 64).jobs
    assert len({job.user for job in single}) == len(single) == 40


def test_seeds() -> None:
    assert with_seed("lublin", 3) == "lublin:seed=3"
    assert with_seed("lublin:jobs=5", 3) == "lublin:jobs=5,seed=3"
    assert with_seed("lublin:seed=1,jobs=5", 3) == "lublin:seed=1,jobs=5"
    assert is_generated("bursts") and not is_generated("lublin.swf") and not is_generated("a:b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lublin:jbos=3", "no option 'jbos'.*did you mean jobs"), ("poisson:size=3", "no option 'size'"),
        ("lublin:jobs", "no option 'jobs'"), ("lublin:jobs=many", "not a generated workload"),
        ("lublin:jobs=0", "jobs; expected 1 to"), ("lublin:jobs=1000000000", "jobs; expected 1 to"),
        ("poisson:load=0", "load; expected a number above 0"), ("poisson:runtime=inf", "runtime; expected"),
        ("bursts:overestimate=0.5", "overestimate; expected 1 to"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        generate(text, 4)
    with pytest.raises(InputError, match="size of the machine"):
        generate("lublin", 0)


SUMS = {
    ("lublin:jobs=400", 128): (4642, 1660341, 1660741, 91414793, 50),
    ("lublin:jobs=300,seed=5,load=0.8,overestimate=3", 100): (2967, 1380661, 2786323, 34987959, 50),
    ("lublin:jobs=200,widest=3", 64): (353, 666300, 666500, 22547821, 48),
    ("lublin:jobs=200", 2): (350, 666300, 666500, 22547821, 48),
    ("lublin:jobs=200", 5000): (59489, 1401488, 1401688, 23279336, 48),
    ("lublin:jobs=1", 1): (1, 1894, 1895, 0, 1),
    ("poisson:jobs=300,runtime=600", 64): (5672, 180448, 180748, 29975740, 50),
    ("poisson:jobs=100,load=0.7,seed=2", 100): (1537, 343654, 343754, 4189039, 50),
    ("poisson:jobs=1,load=0.5", 7): (4, 65, 66, 0, 1),
    ("bursts:jobs=300,size=15", 64): (5512, 1042879, 1043179, 107540647, 18),
    ("bursts:jobs=50,size=1", 64): (1043, 178251, 178301, 3159876, 50),
    ("bursts:jobs=100,runtime=50,overestimate=2,widest=5", 40): (138, 8796, 13706, 29650, 5),
    ("bursts:jobs=60", 33): (60, 540482, 540542, 0, 1),
}  # fmt: skip
"""Request and units -> sums of units, run times, walltimes and dates of submission, and the number of users."""


@pytest.mark.parametrize(("text", "units"), SUMS)
def test_the_jobs_of_a_text_are_those_of_earlier_versions(text: str, units: int) -> None:
    jobs = generate(text, units).jobs
    found = (
        sum(job.units for job in jobs), sum(job.runtime or 0.0 for job in jobs), sum(job.walltime for job in jobs),
        sum(job.submitted_at for job in jobs), len({job.user for job in jobs}),
    )  # fmt: skip
    assert found == pytest.approx(SUMS[text, units], rel=1e-7, abs=2)  # the last digit is that of the machine's logarithm


def test_names_users_and_profiles() -> None:
    burst = generate("bursts:jobs=5,size=3,seed=1", 16, "w7")
    assert [(job.id, job.units, job.submitted_at, job.runtime, job.walltime, job.user) for job in burst.jobs] == [
        ("w7!1", 8, 0.0, 1826.0, 1827.0, "burst1"), ("w7!2", 8, 0.0, 1845.0, 1846.0, "burst1"),
        ("w7!3", 8, 0.0, 2004.0, 2005.0, "burst1"), ("w7!4", 8, 0.0, 1743.0, 1744.0, "burst1"),
        ("w7!5", 2, 4600.0, 743.0, 744.0, "burst2"),
    ]  # fmt: skip
    assert all(job.profile is burst.profiles[f"w7!delay{job.runtime:g}"] for job in burst.jobs)
    assert (burst.name, burst.path, burst.units) == ("w7", "bursts:jobs=5,size=3,seed=1", 16)
    assert burst.oddities == {"walltime invented: the run time and a second": 5}
    poisson = generate("poisson:jobs=52", 16)
    assert [job.user for job in poisson.jobs] == [str(number % 50) for number in range(1, 53)]
    assert poisson.jobs[0].id == "w0!1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lublin:widest=-1", "widest; expected 0 to"), ("bursts:size=0", "size; expected a number above 0"),
        ("bursts:size=nan", "size; expected a number above 0"), ("lublin:overestimate=2000000", "overestimate; expected 1 to"),
        ("lublin:load=-1", "load; expected a number above 0"), ("lublin:jobs=50000001", "jobs; expected 1 to"),
    ],
)  # fmt: skip
def test_bounds_of_options(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check(text)


@pytest.mark.parametrize(
    "text",
    ["lublin", "lublin:", "lublin:jobs=1", "lublin:jobs=50000000", "lublin:widest=0,overestimate=1", "lublin:,seed=1,",
     "bursts:size=0.5,runtime=0.1,load=0.01", "poisson:overestimate=1000000"],
)  # fmt: skip
def test_requests_that_make_sense(text: str) -> None:
    check(text)


def test_other_names_are_no_generators() -> None:
    with pytest.raises(InputError, match="no such generator; expected lublin, poisson, bursts"):
        check("lublim:jobs=3")
    assert with_seed("lublin: seed = 4", 3) == "lublin: seed = 4"
    assert with_seed("lublin:", 3) == "lublin:seed=3"
