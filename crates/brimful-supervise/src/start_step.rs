//! The steps of starting a run, by name.

/// One step of starting a run, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartStep {
    /// Search for settings that fit (only without a command).
    Plan,
    /// Choose the first command line, with its checkpoint.
    FirstCommand,
    /// Block the signal that would stop brimful when it writes to the training's terminal.
    TerminalStops,
    /// Find out the working directory.
    WorkingDirectory,
    /// Create the directory of the run.
    StateDirectory,
    /// Create the record.
    Record,
    /// Write its first line.
    RunLine,
    /// Look for an earlier run here that has no end.
    EarlierRun,
    /// Become the parent of orphans of the job.
    Subreaper,
    /// Listen for signals.
    Signals,
    /// Create a cgroup for the job.
    Cgroup,
    /// Ask systemd for a scope.
    Scope,
    /// Open the GPUs' meter.
    GpuMeter,
    /// Prepare to take samples.
    Sampler,
    /// Open the pipes or the terminal for the output.
    Streams,
    /// Start the thread that passes the output on.
    Relay,
    /// Write the hook's files.
    Hook,
    /// Choose who has the terminal.
    JobControl,
    /// Start the keeper.
    Keeper,
    /// In the keeper: start the training.
    KeeperLaunch,
    /// Start the training without a keeper.
    Launch,
    /// Move the training into its cgroup.
    JoinCgroup,
    /// Hand the terminal to the training.
    Terminal,
    /// Let the training begin.
    Begin,
    /// In the keeper: wait for the end of the training.
    KeeperWatch,
    /// Find the cgroup of the scope.
    ScopeGroup,
    /// Write the attempt's first line.
    AttemptLine,
    /// Pass the output on.
    BeginRelay,
    /// Take the first sample.
    FirstSample,
    /// Show the status line.
    StatusLine,
    /// Write the metrics file.
    Metrics,
}

impl StartStep {
    pub const ALL: [StartStep; 31] = [
        StartStep::Plan,
        StartStep::FirstCommand,
        StartStep::TerminalStops,
        StartStep::WorkingDirectory,
        StartStep::StateDirectory,
        StartStep::Record,
        StartStep::RunLine,
        StartStep::EarlierRun,
        StartStep::Subreaper,
        StartStep::Signals,
        StartStep::Cgroup,
        StartStep::Scope,
        StartStep::GpuMeter,
        StartStep::Sampler,
        StartStep::Streams,
        StartStep::Relay,
        StartStep::Hook,
        StartStep::JobControl,
        StartStep::Keeper,
        StartStep::KeeperLaunch,
        StartStep::Launch,
        StartStep::JoinCgroup,
        StartStep::Terminal,
        StartStep::Begin,
        StartStep::KeeperWatch,
        StartStep::ScopeGroup,
        StartStep::AttemptLine,
        StartStep::BeginRelay,
        StartStep::FirstSample,
        StartStep::StatusLine,
        StartStep::Metrics,
    ];

    /// The name by which a test injects a fault.
    pub const fn name(self) -> &'static str {
        match self {
            StartStep::Plan => "plan",
            StartStep::FirstCommand => "first_command",
            StartStep::TerminalStops => "terminal_stops",
            StartStep::WorkingDirectory => "working_directory",
            StartStep::StateDirectory => "state_directory",
            StartStep::Record => "record",
            StartStep::RunLine => "run_line",
            StartStep::EarlierRun => "earlier_run",
            StartStep::Subreaper => "subreaper",
            StartStep::Signals => "signals",
            StartStep::Cgroup => "cgroup",
            StartStep::Scope => "scope",
            StartStep::GpuMeter => "gpu_meter",
            StartStep::Sampler => "sampler",
            StartStep::Relay => "relay",
            StartStep::Streams => "streams",
            StartStep::Hook => "hook",
            StartStep::JobControl => "job_control",
            StartStep::Keeper => "keeper",
            StartStep::KeeperLaunch => "keeper_launch",
            StartStep::Launch => "launch",
            StartStep::JoinCgroup => "join_cgroup",
            StartStep::Terminal => "terminal",
            StartStep::Begin => "begin",
            StartStep::KeeperWatch => "keeper_watch",
            StartStep::ScopeGroup => "scope_group",
            StartStep::AttemptLine => "attempt_line",
            StartStep::BeginRelay => "begin_relay",
            StartStep::FirstSample => "first_sample",
            StartStep::StatusLine => "status_line",
            StartStep::Metrics => "metrics",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_name_and_place() {
        let steps = StartStep::ALL;
        assert!(steps.is_sorted());
        let mut names: Vec<&str> = steps.iter().map(|step| step.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), steps.len());
    }
}
