//! Hints for the command line.

use brimful::user_error::Hint;

/// The text of a hint at a terminal.
pub(crate) fn text(hint: &Hint) -> String {
    let words = match hint {
        Hint::Text(words) => return words.to_string(),
        Hint::ListMachines => "run `brimful probe --list` to list all machines",
        Hint::ListGpus => "run `brimful probe --list` to list all GPU models",
        Hint::DescribeRecordedMachine => {
            "run `brimful probe --as NAME` to describe a known machine; `brimful probe --list` lists them"
        }
        Hint::AddUnit => "add a unit, for example `--memory 16GiB`",
        Hint::WriteCommand => {
            "write the command after `--` as you would type it, for example `-- python train.py`"
        }
        Hint::CreateJobFile => {
            "run `brimful init -- python train.py` to create one, or pass `--job FILE`"
        }
        Hint::RunWithoutJob => {
            "`run`, `predict` and `compare` also take a command: `brimful run -- python train.py`"
        }
        Hint::InstallPhantom => {
            "install brimful with pip, which includes the library, or pass its path with `--phantom`"
        }
        Hint::RaiseTimeLimit => "raise `--time-limit`, or shorten what comes before the first step",
        Hint::RaiseTimeLimitOrLowerSteps => "raise `--time-limit` or lower `--steps`",
        Hint::RaiseTimeLimitOrDoLess => {
            "if that line is slow, give it less to do (fewer examples, a smaller cache) or raise `--time-limit`; if it waits for something, a rehearsal cannot provide it"
        }
        Hint::NameMoreGpus => {
            "the script uses several GPUs; name as many, for example `--gpu 2xl4`"
        }
        Hint::NameFewerGpus => "name fewer GPUs, for example `--gpu \"8x t4\"`",
        Hint::AllowIsolation => {
            "allow user namespaces or Landlock (see docs/guides/predict.md), or pass `--allow-writes` to let the script write for real"
        }
        Hint::RaiseScratch => "pass a larger `--scratch`, for example `--scratch 20GiB`",
        Hint::RaiseScratchOrWriteLess => {
            "pass a larger `--scratch`, or let the script write less in its first steps"
        }
        Hint::IsolateOrRaiseScratch => "omit `--allow-writes`, or pass a larger `--scratch`",
        Hint::AllowMoreKnobs => "allow more knobs to change with `sacrifice` in the job file",
        Hint::StartAsWanted => "run `brimful run --as-wanted` to start anyway",
        Hint::ForceResume => {
            "to resume from one of them anyway, pass `--force` once you know who wrote it"
        }
        Hint::StartFromBeginning => {
            "to start from the beginning, move them away or omit `--resume`"
        }
        Hint::ListRuns => "run `brimful runs` to list recorded runs",
        Hint::RecordRun => {
            "record one with `brimful run -- python train.py`, or explain a log with `brimful explain train.log`"
        }
        Hint::ChooseStateDir => "choose a directory with `--state-dir` or BRIMFUL_STATE_DIR",
    };
    words.to_owned()
}
