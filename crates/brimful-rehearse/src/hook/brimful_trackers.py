"""Experiment trackers are off in a rehearsal, also where a script's arguments override their switches.

The switches themselves are environment variables (`trackers.rs`). Here each tracker's entry points are
replaced when its module has been loaded: a run is disabled, or is stored in a directory that goes with the
rehearsal.
"""

import os
import sys

from brimful_common import load_part
from brimful_imports import IMPORTS
from brimful_suppress import forcing, instead, is_remote, local_directory, problem, replace, suppressed

WANDB = "logging to Weights & Biases"
MLFLOW = "logging to an MLflow server"
COMET = "logging to Comet"
NEPTUNE = "logging to Neptune"
CLEARML = "logging to ClearML"
AIM = "logging to a remote Aim repository"
SWANLAB = "logging to SwanLab"
TRACKIO = "logging to a Trackio Space"
KAGGLE = "uploading to Kaggle"


def install():
    """Wait for each tracker."""
    for name, function in _MODULES:
        IMPORTS.after(name, function, problem)


# --- Weights & Biases ---


def _wandb_init(module):
    replace(module, "init", forcing(WANDB, mode="disabled"))


def _wandb_login(module):
    replace(module, "login", instead("logging in to Weights & Biases", result=True))


def _wandb_sweep(module):
    # A sweep that is not registered has an identifier of the usual form.
    replace(module, "sweep", instead("a Weights & Biases sweep", "rehearsal"))


def _wandb_agent(module):
    def make(_agent):
        def run_once(sweep_id, function=None, *_, **__):
            suppressed("a Weights & Biases sweep")
            if function is not None:
                function()

        return run_once

    replace(module, "agent", make)


def _wandb_artifact(module):
    for name in ("save", "delete", "link", "unlink"):
        replace(module.Artifact, name, instead("changing an artifact of Weights & Biases"))


def _wandb_public_run(module):
    for name in ("update", "save", "delete", "upload_file", "log_artifact", "use_artifact", "update_state"):
        replace(module.Run, name, instead("changing a run of Weights & Biases"))


# --- MLflow ---


def _local_store(_uri=None):
    suppressed(MLFLOW)
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    return os.path.join(local_directory(), "mlflow")


def _with_local_uri(function):
    """Make functions whose first argument, and whose result, is never the address of a server."""

    def calling(uri=None, *arguments, **named):
        for name in [name for name, value in named.items() if name.endswith("uri") and is_remote(value)]:
            named[name] = _local_store()
        found = function(_local_store() if is_remote(uri) else uri, *arguments, **named)
        return _local_store() if isinstance(found, str) and is_remote(found) else found

    return calling


def _without_remote_result(function):
    def calling(*arguments, **named):
        found = function(*arguments, **named)
        return _local_store() if isinstance(found, str) and is_remote(found) else found

    return calling


def _mlflow_tracking(module):
    if is_remote(os.environ.get("BRIMFUL_MLFLOW_URI")):
        suppressed(MLFLOW)  # the server that the environment named
    replace(module, "set_tracking_uri", _with_local_uri)
    replace(module, "_resolve_tracking_uri", _with_local_uri)
    replace(module, "get_tracking_uri", _without_remote_result)


def _mlflow_registry(module):
    replace(module, "set_registry_uri", _with_local_uri)
    replace(module, "_resolve_registry_uri", _with_local_uri)
    replace(module, "get_registry_uri", _without_remote_result)


def _mlflow_requests(module):
    def refused(_creds=None, endpoint="", method="", *_, **__):
        suppressed(MLFLOW)
        raise OSError(f"no request to an MLflow server in a rehearsal: {method} {endpoint}")

    replace(module, "http_request", lambda _: refused)


def _mlflow_artifacts(module):
    """Artifacts may have a place of their own, such as a bucket."""

    def make(get):
        def getting(self, artifact_uri, *arguments, **named):
            repository = get(self, artifact_uri, *arguments, **named)
            # The local schemes of MLflow lead to one of the others.
            if is_remote(artifact_uri) and not str(artifact_uri).startswith(("runs:", "models:")):
                for name in ("log_artifact", "log_artifacts", "delete_artifacts"):
                    setattr(repository, name, instead("uploading artifacts of MLflow")(None))
            return repository

        return getting

    replace(module.ArtifactRepositoryRegistry, "get_artifact_repository", make)


# --- Comet ---


def _comet_online(module):
    replace(module.Experiment, "__init__", forcing(COMET, disabled=True))


def _comet_start(module):
    def make(start):
        def starting(*_, project_name=None, experiment_config=None, **__):
            suppressed(COMET)
            # Offline, and new: an experiment that exists can only be looked up on the server.
            return start(
                project_name=project_name, online=False, mode="create", experiment_config=experiment_config
            )

        return starting

    replace(module, "start", make)


def _comet_login(module):
    for name in ("login", "init", "init_onprem"):
        replace(module, name, instead("logging in to Comet"))


def _comet_requests(module):
    """What the classes for reading can change, too: they read by GET."""
    replace(module.RestApiClient, "post", instead("changing data of Comet"))


# --- Neptune ---


def _neptune(*kinds):
    def patch(module):
        for kind in kinds:
            replace(getattr(module, kind), "__init__", _in_debug_mode)

    return patch


def _in_debug_mode(function):
    forced = forcing(NEPTUNE, mode="debug")(function)

    def starting(*arguments, **named):
        # Reading a run that exists changes nothing.
        reads = named.get("mode") == "read-only"
        return function(*arguments, **named) if reads else forced(*arguments, **named)

    return starting


def _neptune_scale(module):
    replace(module.Run, "__init__", forcing(NEPTUNE, mode="disabled"))


# --- ClearML ---


def _clearml_task(module):
    def make(init):
        def starting(cls, *arguments, **named):
            suppressed(CLEARML)
            return init(cls, *arguments, **named)

        return starting

    task = module.Task
    task.set_offline(True)
    replace(task, "set_offline", instead(CLEARML))
    replace(task, "init", make)
    replace(task, "create", make)
    replace(task, "import_offline_session", instead(CLEARML))


def _clearml_storage(module):
    def remote_url(_cls, *arguments, remote_url=None, **_):
        return remote_url or (arguments[1] if len(arguments) > 1 else "")

    for name in ("upload_file", "upload_folder"):
        replace(module.StorageManager, name, instead("uploading with ClearML", remote_url))


def _clearml_model(module):
    # Where ClearML is offline these fail: there is no model to look up.
    for name in ("update_weights", "update_weights_package"):
        replace(module.OutputModel, name, instead("uploading a model with ClearML", result=""))


def _clearml_updates(module):
    replace(module.CheckPackageUpdates, "check_new_package_available", lambda _: lambda *_: None)


# --- Aim ---


def _aim_repo(module):
    def make(function):
        def opening(owner, path, *arguments, **named):
            if str(path).startswith(("aim://", "ssh://")):
                suppressed(AIM)
                path = os.path.join(local_directory(), "aim")
                os.makedirs(path, exist_ok=True)
                named["init"] = True
            return function(owner, path, *arguments, **named)

        return opening

    replace(module.Repo, "__init__", make)
    replace(module.Repo, "from_path", make)
    replace(module.Repo, "check_repo_status", _aim_status(module))


def _aim_status(module):
    def make(check):
        def checking(owner, path, *arguments, **named):
            if str(path).startswith(("aim://", "ssh://")):
                return module.RepoStatus.UPDATED
            return check(owner, path, *arguments, **named)

        return checking

    return make


# --- others ---


def _swanlab(module):
    replace(module, "init", forcing(SWANLAB, mode="disabled"))


def _swanlab_login(module):
    replace(module, "login", instead("logging in to SwanLab", result=True))


def _trackio(module):
    def make(init):
        def starting(*arguments, **named):
            for name in ("space_id", "dataset_id", "server_url", "bucket_id"):
                if named.pop(name, None):
                    suppressed(TRACKIO)
            return init(*arguments, **named)

        return starting

    replace(module, "init", make)
    for name in ("sync", "deploy_space", "freeze"):
        replace(module, name, instead(TRACKIO))


def _hub(function):
    """Have a part for the Hugging Face Hub do it, which few Pythons need."""

    def patch(module):
        part = sys.modules.get("brimful_hub") or load_part("brimful_hub")
        getattr(part, function)(module)

    return patch


def _kagglehub(module):
    for name in ("dataset_upload", "model_upload"):
        replace(module, name, instead(KAGGLE))


_MODULES = (
    ("wandb.sdk.wandb_init", _wandb_init),
    ("wandb.sdk.wandb_login", _wandb_login),
    ("wandb.sdk.wandb_sweep", _wandb_sweep),
    ("wandb.wandb_agent", _wandb_agent),
    ("wandb.sdk.artifacts.artifact", _wandb_artifact),
    ("wandb.apis.public.runs", _wandb_public_run),
    ("mlflow.tracking._tracking_service.utils", _mlflow_tracking),
    ("mlflow.tracking._model_registry.utils", _mlflow_registry),
    ("mlflow.utils.rest_utils", _mlflow_requests),
    ("mlflow.store.artifact.artifact_repository_registry", _mlflow_artifacts),
    ("comet_ml._online", _comet_online),
    ("comet_ml.comet_start.comet_start", _comet_start),
    ("comet_ml.config.config_init", _comet_login),
    ("comet_ml.connection.connection_api", _comet_requests),
    ("neptune.metadata_containers.run", _neptune("Run")),
    ("neptune.metadata_containers.model", _neptune("Model")),
    ("neptune.metadata_containers.model_version", _neptune("ModelVersion")),
    ("neptune.metadata_containers.project", _neptune("Project")),
    ("neptune_scale", _neptune_scale),
    ("clearml.task", _clearml_task),
    ("clearml.storage.manager", _clearml_storage),
    ("clearml.model", _clearml_model),
    ("clearml.utilities.check_updates", _clearml_updates),
    ("aim.sdk.repo", _aim_repo),
    ("swanlab.sdk.cmd.init", _swanlab),
    ("swanlab.data.sdk", _swanlab),
    ("swanlab.sdk.cmd.login", _swanlab_login),
    ("trackio", _trackio),
    ("kagglehub", _kagglehub),
    ("huggingface_hub.hf_api", _hub("patch_api")),
    ("huggingface_hub.file_download", _hub("patch_downloads")),
    ("huggingface_hub.utils._http", _hub("patch_requests")),
    ("huggingface_hub.repocard", _hub("patch_cards")),
    ("datasets.arrow_dataset", _hub("patch_datasets")),
    ("datasets.dataset_dict", _hub("patch_datasets")),
    ("datasets.iterable_dataset", _hub("patch_datasets")),
    ("huggingface_hub.repository", _hub("patch_repository")),
)
