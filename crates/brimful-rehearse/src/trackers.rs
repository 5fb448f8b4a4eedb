//! Experiment trackers and uploads are off while a script is rehearsed: their documented switches.
//!
//! Where a script's arguments override a switch, or where there is none, the hook steps in (`brimful_trackers.py`,
//! `brimful_hub.py`).

use std::path::Path;
use std::process::Command;

/// Variables and values, each as its tool documents it.
const SWITCHES: &[(&str, &str)] = &[
    // Weights & Biases: runs, crash reports, and Weave.
    ("WANDB_MODE", "disabled"),
    ("WANDB_ERROR_REPORTING", "false"),
    ("WANDB_SILENT", "true"),
    ("WEAVE_DISABLED", "true"),
    // MLflow: a directory instead of a server, see `turn_off`; newer releases want to be asked for one.
    ("MLFLOW_ALLOW_FILE_STORE", "true"),
    ("MLFLOW_DISABLE_TELEMETRY", "true"),
    // Comet: experiments are disabled, and `comet_ml.start` makes offline ones.
    ("COMET_AUTO_LOG_DISABLE", "true"),
    ("COMET_START_ONLINE", "false"),
    ("COMET_ERROR_TRACKING_ENABLE", "false"),
    ("COMET_DISABLE_ANNOUNCEMENT", "true"),
    // Neptune: of the modes that both of its clients know, the one without a connection.
    ("NEPTUNE_MODE", "offline"),
    ("CLEARML_OFFLINE_MODE", "1"),
    ("SWANLAB_MODE", "disabled"),
    // DVCLive: DVC Studio, and pushes after an experiment was saved.
    ("DVC_STUDIO_OFFLINE", "true"),
    ("DVC_EXP_AUTO_PUSH", "false"),
    ("DVC_NO_ANALYTICS", "true"),
    // Hugging Face.
    ("HF_HUB_DISABLE_TELEMETRY", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("GRADIO_ANALYTICS_ENABLED", "False"),
    // Others.
    ("RAY_USAGE_STATS_ENABLED", "0"),
    ("DO_NOT_TRACK", "true"),
];

/// Variables that name a run or a place on a service; a local store does not know it.
const REMOVED: &[&str] = &[
    "MLFLOW_RUN_ID",
    "MLFLOW_EXPERIMENT_ID",
    "CLEARML_TASK_ID",
    "TRAINS_TASK_ID",
    "TRAINS_OFFLINE_MODE",
    "TRACKIO_SPACE_ID",
    "TRACKIO_DATASET_ID",
    "TRACKIO_BUCKET_ID",
    "TRACKIO_SERVER_URL",
];

/// Turns the trackers of a command off; what they must store goes into `directory`.
pub(crate) fn turn_off(command: &mut Command, directory: &Path) {
    command.envs(SWITCHES.iter().copied());
    for name in REMOVED {
        command.env_remove(name);
    }
    let store = directory.join("mlflow");
    if let Some(server) = std::env::var_os(brimful::env_vars::MLFLOW_TRACKING_URI) {
        command.env("BRIMFUL_MLFLOW_URI", server);
    }
    command
        .env("COMET_OFFLINE_DIRECTORY", directory.join("comet"))
        .env("MLFLOW_TRACKING_URI", &store)
        .env("MLFLOW_REGISTRY_URI", &store)
        .env("BRIMFUL_TRACKERS", directory);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_variable_is_set_once_or_removed() {
        let names: Vec<&str> = SWITCHES
            .iter()
            .map(|(name, _)| *name)
            .chain(REMOVED.iter().copied())
            .collect();
        let unique: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn a_server_in_the_environment_is_replaced_by_a_directory() {
        let mut command = Command::new("true");
        command
            .env("MLFLOW_TRACKING_URI", "https://tracking.example")
            .env("WANDB_MODE", "online")
            .env("MLFLOW_RUN_ID", "17");
        turn_off(&mut command, Path::new("/scratch/trackers"));
        let value = |name: &str| {
            let found = command.get_envs().find(|(own, _)| *own == name);
            found.and_then(|(_, value)| value.map(|value| value.to_string_lossy().into_owned()))
        };
        assert_eq!(
            value("MLFLOW_TRACKING_URI").as_deref(),
            Some("/scratch/trackers/mlflow")
        );
        assert_eq!(value("WANDB_MODE").as_deref(), Some("disabled"));
        assert_eq!(value("MLFLOW_RUN_ID"), None);
    }
}
