"""Do plans hold? Random jobs under random limits, planned, and run in a control group and on the phantom.

Each job has a dataset of 50 MB to 1.5 GB (an array, tensors or Python objects), 0 to 6 wanted workers, a
start method, and an MLP, CNN or transformer. Its limits, of the control group and of the card, are drawn
from what no settings can do without upwards, so that about half of the jobs do not fit as wanted.

Counted: jobs whose planned settings survive the first try; jobs that end well with the ladder; and, for the
first `--brute` jobs, the measured rate of the plan against the best of all settings of the grid that survive.
The phantom computes nothing, so the job waits as long as a T4 would at half of its peak rate; and every
worker first looks at all samples, so that what survives a short run would survive a long one.

    python benches/plans/plans_hold.py --brimful PATH [--jobs 200] [--brute 0] [--only-forked] [--at-once 1]

Needs the right to make control groups (root), the CUDA build of torch, and an installed brimful.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from groups import Group  # noqa: E402

CARD = "t4"
TOTAL = 15_634_661_376  # what torch sees of it
CONTEXT = 200 << 20  # what a real context would take besides, as the prediction reckons
CONTEXT_SAFE = 680 << 20  # a context with its libraries at the most, and one sample
LONGEST = 300
CARD_FLOPS = 4e12  # half of the 8.1 TFLOPS that the data sheet of a T4 promises

JOB = """
[job]
command = ["{python}", "{script}", "--kind", "{kind}", "--megabytes", "{megabytes}", "--work-us", "{work_us}",
    "--model", "{model}", "--width", "{width}", "--start-method", "{start_method}", "--steps", "{steps}",
    "--seconds", "{seconds}", "--report", "rate.jsonl", "--batch-size", "{{micro_batch}}",
    "--accumulate", "{{accumulation}}", "--workers", "{{workers}}", "--prefetch", "{{prefetch}}"]
checkpoints = "last.pt"
resume = ["--resume", "{{checkpoint}}"]

[keep]
effective_batch = {effective}

[knobs]
micro_batch = {micro}
workers = {workers}
prefetch = [2, 1]
allocator = ["", "expandable_segments:True"]
"""


def drawn(dice, seconds):
    """One random job."""
    micro = dice.choice([32, 64, 128])
    effective = micro * dice.choice([1, 2, 4])
    wanted = dice.randint(0, 6)
    model = dice.choice(["mlp", "cnn", "transformer"])
    widths = {"mlp": [2048, 8192, 16384], "cnn": [256, 512, 768], "transformer": [128, 256, 384]}[model]
    width = dice.choice(widths)
    return {
        "kind": dice.choice(["array", "tensors", "objects"]),
        "megabytes": round(50 * 30 ** dice.random()),
        "work_us": round(10 * 300 ** dice.random()),
        "model": model,
        "width": width,
        "card_us": round(3 * forward_flop(model, width) / CARD_FLOPS * 1e6, 1),
        "start_method": dice.choice(["fork", "fork", "spawn", "forkserver"]),
        "steps": 6,
        "seconds": seconds,
        "effective": effective,
        "micro": [micro // 2**k for k in range(5) if micro // 2**k >= 1],
        "workers": list(range(wanted, -1, -1)),
        "host_share": dice.uniform(0, 3.4),
        "gpu_share": dice.uniform(0, 3.4),
    }


def forward_flop(model, width):
    """Operations of a forward pass per sample; a backward pass has twice as many."""
    if model == "mlp":
        return 2 * width * (width + 256)
    if model == "cnn":
        return 2 * 9 * (width // 8) ** 2 * 128 * 128
    return 2 * 2 * 256 * (12 * width**2 + 2 * 256 * width)


def parameters(model, width):
    """Of the models of `job.py`; each takes 16 bytes with AdamW, and 8 more while it steps."""
    if model == "mlp":
        return width * (width + 256)
    if model == "cnn":
        return 9 * (width // 8) ** 2
    return 2 * 12 * width**2 + 256 * width


def drawn_limit(least, wanted, share):
    """A limit between what no settings can do without and far more than is wanted.

    Both of two limits with shares from 0 to 3.4 leave room for what is wanted in half of the jobs.
    """
    return round(least + max(wanted - least, 0.1 * least) * share)


class Trial:
    """One job from its first plan to its end."""

    def __init__(self, number, job, asked):
        self.number, self.job, self.asked = number, job, asked
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="brimful-plans-"))
        text = JOB.format(python=sys.executable, script=HERE / "job.py", **job)
        (self.folder / "brimful.toml").write_text(text, encoding="utf-8")
        self.environment = {**os.environ, "BRIMFUL_STATE_DIR": str(self.folder / "state")}

    def plan(self, *more):
        command = [self.asked.brimful, "plan", "--gpu", CARD, "--json", *more]
        ended = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if ended.returncode not in {0, 99}:
            raise RuntimeError(
                f"job {self.number}: plan ended with {ended.returncode}: {ended.stderr[-800:]}"
            )
        return json.loads(ended.stdout)

    def staged(self, capacity):
        """The environment in which the phantom is a card of that capacity."""
        devices = (
            f"name=Tesla T4,memory={capacity},room={capacity - CONTEXT},held=0,cc=7.5,multiprocessors=40"
        )
        return {
            **self.environment,
            "LD_PRELOAD": str(self.asked.stage / "libbrimful_phantom.so"),
            "BRIMFUL_PHANTOM_DEVICES": devices,
            "BRIMFUL_PHANTOM_CUDNN_VERSION": "99900",
        }

    def run(self, host, gpu, command):
        """Run a command under both limits."""
        group = Group(f"brimful-plans-{os.getpid()}-{self.number}", host)
        report = self.folder / "rate.jsonl"
        report.unlink(missing_ok=True)
        try:
            code, out, err = group.run(command, timeout=LONGEST, cwd=self.folder, env=self.staged(gpu))
        except subprocess.TimeoutExpired:
            code, out, err = 124, "", "too long"
        finally:
            group.remove()
        rate = 0.0
        if code == 0 and report.exists():
            rate = json.loads(report.read_text(encoding="utf-8").splitlines()[-1])["samples_per_second"]
        return code, rate, (out + err)[-2000:]

    def with_settings(self, command, micro, workers):
        """The command with other settings; of an option that is given twice the last one counts."""
        settings = {
            "--batch-size": micro,
            "--accumulate": self.job["effective"] // micro,
            "--workers": workers,
            "--prefetch": 2,
        }
        return [
            *command,
            *(str(word) for pair in settings.items() for word in pair),
            *self.in_earnest(timed=True),
        ]

    def in_earnest(self, *, timed):
        """What a run has and a rehearsal has not: a card that takes its time, workers that saw all data."""
        if not timed:
            return ["--look-at-all", "--seconds", "0"]
        return ["--look-at-all", "--card-us", str(self.job["card_us"])]

    def grid(self, plan, host, gpu):
        """The best rate of all settings that survive.

        With the same workers a smaller micro-batch is only tried where the larger one dies: on a card it is
        never faster.
        """
        found = []
        for workers in self.job["workers"]:
            for micro in self.job["micro"]:
                code, rate, _ = self.run(host, gpu, self.with_settings(plan["command"], micro, workers))
                if code == 0:
                    found.append((rate, micro, workers))
                    break
        return max(found, default=(0.0, 0, 0))

    def result(self, *, brute):
        """Ask what the wanted settings need, draw the limits, plan, run."""
        held = (f"workers={self.job['workers'][0]}", f"micro_batch={self.job['micro'][0]}")
        wanted = self.plan("--memory", "200GiB", "--shm", "100GiB", *held)["footprint"]
        always = ("program", "dataset", "training")
        least = sum(term["safe_bytes"] for term in wanted["host_terms"] if term["name"] in always)
        host = drawn_limit(1.02 * least, wanted["host"]["likely_bytes"], self.job["host_share"])
        least = CONTEXT_SAFE + 24 * parameters(self.job["model"], self.job["width"])
        gpu = min(TOTAL, drawn_limit(least, wanted["gpu"]["likely_bytes"], self.job["gpu_share"]))
        plan = self.plan("--memory", str(host), "--gpu-memory", str(gpu))
        answer = {
            "job": self.number,
            **self.job,
            "host": host,
            "gpu": gpu,
            "fits_as_wanted": wanted["host"]["likely_bytes"] <= host and wanted["gpu"]["likely_bytes"] <= gpu,
            "fits": plan["fits"],
        }
        if not plan["fits"]:
            return answer
        chosen = plan["settings"]
        answer["chosen"] = [chosen["workers"], chosen["micro_batch"], chosen.get("allocator", "")]
        answer["host_safe"] = plan["footprint"]["host"]["safe_bytes"]
        answer["estimated"] = plan["throughput"]["samples_per_second"] if plan["throughput"] else None
        variables = [f"{one['name']}={one['value']}" for one in plan["environment"]]
        planned = ["env", *variables, *plan["command"], *self.in_earnest(timed=brute)]
        code, rate, said = self.run(host, gpu, planned)
        answer.update(survived=code == 0, rate=rate)
        if code:
            answer["said"] = said[-600:]
            answer["came_back"] = self.ladder(host, gpu)
        # Workers that are not forked take longer to start than a measurement lasts.
        if brute and self.job["start_method"] == "fork":
            best, micro, workers = self.grid(plan, host, gpu)
            if not best:
                return answer
            # The plan's own settings anew beside the best, in turns: the machine's speed changes.
            pairs = []
            for _ in range(3):
                again = self.run(host, gpu, planned)[1]
                other = self.with_settings(plan["command"], micro, workers)
                pairs.append((again, self.run(host, gpu, other)[1]))
            ours, theirs = (sorted(side)[1] for side in zip(*pairs, strict=True))
            answer["best"] = {"rate": best, "micro_batch": micro, "workers": workers}
            answer["share_of_best"] = ours / theirs if theirs else 1.0
        return answer

    def ladder(self, host, gpu):
        """Whether it ends well with the ladder."""
        command = [self.asked.brimful, "run", "--quiet", "--gpu", CARD, "--as-wanted"]
        return self.run(host, gpu, command)[0] == 0


def stage(brimful, folder):
    """The phantom's library with a link for each name that it answers to."""
    prefix = pathlib.Path(shutil.which(brimful) or brimful).resolve().parent
    for place in (prefix, prefix.parent / "lib/brimful", prefix / "../lib/brimful"):
        library = place / "libbrimful_phantom.so"
        if library.is_file():
            break
    else:
        sys.exit(f"expected libbrimful_phantom.so beside {brimful}, found none")
    shutil.copy(library, folder)
    for name in (HERE.parents[1] / "crates/brimful-phantom/sonames.txt").read_text(encoding="utf-8").split():
        (folder / name).symlink_to("libbrimful_phantom.so")


def main():
    """Run the jobs and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brimful", required=True)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first job")
    parser.add_argument(
        "--brute", type=int, default=0, help="of these, so many against all settings, if forked"
    )
    parser.add_argument("--only-forked", action="store_true", help="jobs that `--brute` compares, no others")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of each measurement of a rate")
    parser.add_argument("--output", help="append one JSON line per job")
    asked = parser.parse_args()
    asked.brimful = shutil.which(asked.brimful) or str(pathlib.Path(asked.brimful).resolve())
    results = []
    with tempfile.TemporaryDirectory(prefix="brimful-stage-") as folder:
        asked.stage = pathlib.Path(folder)
        stage(asked.brimful, asked.stage)

        def is_forked(number):
            return drawn(random.Random(f"{asked.seed}-{number}"), asked.seconds)["start_method"] == "fork"

        def one(number):
            job = drawn(random.Random(f"{asked.seed}-{number}"), asked.seconds)
            trial = Trial(number, job, asked)
            try:
                return trial.result(brute=asked.only_forked or number - asked.first < asked.brute)
            except Exception as error:  # noqa: BLE001
                return {"job": number, **job, "error": str(error)}
            finally:
                shutil.rmtree(trial.folder, ignore_errors=True)

        numbers = range(asked.first, asked.first + asked.jobs)
        if asked.only_forked:
            numbers = itertools.islice(filter(is_forked, itertools.count(asked.first)), asked.jobs)
        with concurrent.futures.ThreadPoolExecutor(asked.at_once) as pool:
            for result in pool.map(one, numbers):
                results.append(result)
                if asked.output:
                    with pathlib.Path(asked.output).open("a", encoding="utf-8") as file:
                        file.write(json.dumps(result) + "\n")
                print(line_of(result), flush=True)
    return summary(results)


def line_of(result):
    """One job in one line."""
    if "error" in result:
        return f"{result['job']:4} ERROR {result['error']}"
    head = (
        f"{result['job']:4} {result['kind']:8}{result['megabytes']:5} MB {result['model']:12}"
        f"{result['start_method']:11}wanted {result['workers'][0]}/{result['micro'][0]:<4}"
    )
    if not result["fits"]:
        return f"{head} nothing fits in {result['host'] >> 20} MiB, {result['gpu'] >> 20} MiB"
    end = "survived" if result["survived"] else f"DIED, came back: {result['came_back']}"
    share = f", {result['share_of_best']:.2f} of the best" if "share_of_best" in result else ""
    return f"{head} chosen {result['chosen']} {end}, {result['rate']:.0f}/s{share}"


def summary(results):
    """The figures, and whether they are good enough for CI."""
    errors = [result for result in results if "error" in result]
    planned = [result for result in results if result.get("fits")]
    survived = sum(result["survived"] for result in planned)
    ended = sum(result["survived"] or result["came_back"] for result in planned)
    as_wanted = sum(result.get("fits_as_wanted", False) for result in results)
    shares = [result["share_of_best"] for result in planned if "share_of_best" in result]
    print(
        f"\n{len(results)} jobs, {len(planned)} with a plan, {as_wanted} fit as wanted, "
        f"{len(results) - len(planned) - len(errors)} where nothing fits, {len(errors)} errors"
    )
    print(f"survived the first try: {survived} of {len(planned)}; with the ladder: {ended} of {len(planned)}")
    if shares:
        good = sum(share >= 0.95 for share in shares)
        print(f"at least 95 % of the best rate: {good} of {len(shares)}; worst {min(shares):.2f}")
    return 1 if errors or survived < 0.98 * len(planned) or ended < len(planned) else 0


if __name__ == "__main__":
    sys.exit(main())
