//! Hints for Python.

use brimful::user_error::Hint;

/// The text of a hint in a Python exception.
pub(crate) fn text(hint: &Hint) -> String {
    let words = match hint {
        Hint::Text(words) => return words.to_string(),
        Hint::ListMachines => "call `brimful.machine_names()` to list all machines",
        Hint::ListGpus => "call `brimful.card_names()` to list all GPU models",
        Hint::DescribeRecordedMachine => {
            "call `brimful.probe(as_machine=NAME)` to describe a known machine; `brimful.machine_names()` lists them"
        }
        Hint::AddUnit => "add a unit, for example \"16GiB\"",
        Hint::WriteCommand => {
            "pass the command as a list of arguments, for example [\"python\", \"train.py\"]"
        }
        Hint::CreateJobFile => {
            "run `brimful init -- python train.py` in a shell to create one, or pass job=PATH"
        }
        Hint::RunWithoutJob => {
            "`run`, `predict` and `compare` also take a command: `brimful run -- python train.py` in a shell"
        }
        Hint::InstallPhantom => "reinstall brimful with pip, which includes the library",
        Hint::RaiseTimeLimit => "raise time_limit, or shorten what comes before the first step",
        Hint::RaiseTimeLimitOrLowerSteps => "raise time_limit or lower steps",
        Hint::RaiseTimeLimitOrDoLess => {
            "if that line is slow, give it less to do (fewer examples, a smaller cache) or raise time_limit; if it waits for something, a rehearsal cannot provide it"
        }
        Hint::NameMoreGpus => {
            "the script uses several GPUs; name as many, for example gpu=\"2xl4\""
        }
        Hint::NameFewerGpus => "name fewer GPUs, for example gpu=\"8x t4\"",
        Hint::AllowIsolation => {
            "allow user namespaces or Landlock (see docs/guides/predict.md), or pass allow_writes=True to let the script write for real"
        }
        Hint::RaiseScratch => "pass a larger scratch, for example scratch=\"20GiB\"",
        Hint::RaiseScratchOrWriteLess => {
            "pass a larger scratch, for example scratch=\"20GiB\", or let the script write less in its first steps"
        }
        Hint::IsolateOrRaiseScratch => "omit allow_writes, or pass a larger scratch",
        Hint::AllowMoreKnobs => "allow more knobs to change with `sacrifice` in the job file",
        Hint::StartAsWanted => "run `brimful run --as-wanted` in a shell to start anyway",
        Hint::ForceResume => {
            "to resume from one of them anyway, run `brimful run --resume --force` once you know who wrote it"
        }
        Hint::StartFromBeginning => "to start from the beginning, move them away",
        Hint::ListRuns => "run `brimful runs` in a shell to list recorded runs",
        Hint::RecordRun => "record one with `brimful run -- python train.py` in a shell",
        Hint::ChooseStateDir => "set the environment variable BRIMFUL_STATE_DIR to a directory",
    };
    words.to_owned()
}
