"""Nothing is written to the Hugging Face Hub in a rehearsal; reading stays possible.

Every writing method of `HfApi` is replaced on the class: the functions of the package, `push_to_hub` of other
libraries, `HfFileSystem` and the schedulers of uploads all end there. What they return has the right type, so
that the script goes on. Below them, requests that would change something are refused.
"""

import concurrent.futures
import dataclasses
import datetime as dt
import inspect
import re
import sys
import types
import typing

from brimful_suppress import instead, replace, suppressed

# A method of HfApi that begins with one of these changes something.
WRITING = (
    "accept_",
    "add_",
    "batch_",
    "cancel_",
    "change_",
    "comment_",
    "copy_",
    "create_",
    "delete_",
    "disable_",
    "duplicate_",
    "edit_",
    "enable_",
    "grant_",
    "hide_",
    "like",
    "merge_",
    "move_",
    "pause_",
    "permanently_delete_",
    "preupload_",
    "push_",
    "reject_",
    "rename_",
    "request_",
    "rerun_",
    "restart_",
    "resume_",
    "run_job",
    "run_uv_job",
    "scale_",
    "set_",
    "super_squash_",
    "suspend_",
    "sync_",
    "trigger_",
    "unlike",
    "update_",
    "upload_",
)
# These only read, although the method is POST.
READING_REQUESTS = ("/paths-info", "/tree", "/search")
# What stands around the class in an annotation.
_NOT_RESULTS = {
    type(None),
    getattr(types, "UnionType", typing.Union),
    concurrent.futures.Future,
    inspect.Signature.empty,
}
_SIMPLE = {kind.__name__: kind for kind in (str, int, float, bool, list, dict, set, tuple, bytes)}
# Methods of HfApi that read from a repository, which is their first argument.
READING_REPOSITORIES = (
    "dataset_info",
    "get_paths_info",
    "list_repo_commits",
    "list_repo_files",
    "list_repo_refs",
    "list_repo_tree",
    "model_info",
    "repo_info",
    "space_info",
)
NO_COMMIT = "0" * 40
# What somebody who is not logged in would be called.
NOBODY = "rehearsal"


def patch_api(module):
    """Replace the writing methods of `huggingface_hub.hf_api`."""
    api = module.HfApi
    writing = [
        name for name, value in vars(api).items() if name.startswith(WRITING) and inspect.isfunction(value)
    ]
    for name in writing:
        replace(api, name, lambda method, name=name: _undone(module, name, method))
    # It sends the text of a card to be checked.
    replace(api, "_validate_yaml", lambda _: lambda *_, **__: None)
    for name in READING_REPOSITORIES:
        replace(api, name, lambda method, name=name: _reading(module, name, method))
    _rebind(module, [*writing, *READING_REPOSITORIES])


def _rebind(module, names):
    """Have the functions of the package, bound before their methods were replaced, call the new ones."""
    for name in names:
        owner = getattr(getattr(module, name, None), "__self__", None)
        if isinstance(owner, module.HfApi):
            setattr(module, name, getattr(owner, name))


_created = set()  # repositories that would exist if this were no rehearsal


def _undone(module, name, method):
    """Make a method that takes the same arguments, reports itself, and returns what the real one might."""
    signature = inspect.signature(method)

    def writing(self, *arguments, **named):
        call = signature.bind(self, *arguments, **named)
        call.apply_defaults()
        given = {**call.arguments, **call.arguments.get("kwargs", {})}
        target = given.get("repo_id") or given.get("to_id") or given.get("bucket_id") or given.get("from_id")
        suppressed(f"{name} {target or ''} on the Hugging Face Hub")
        result = _result(module, self, _result_type(module, signature), given)
        if given.get("run_as_future"):
            future = concurrent.futures.Future()
            future.set_result(result)
            return future
        return result

    return writing


def _result_type(module, signature):
    """Return the class of what a method returns; nothing where that is None or unknown."""
    found = signature.return_annotation
    if isinstance(found, str):
        names = {**vars(sys.modules["huggingface_hub"]), **vars(module), **_SIMPLE}
        kinds = [names.get(name) for name in re.findall(r"\w+", found)]
    else:
        kinds = [typing.get_origin(found), found, *typing.get_args(found)]
    # `list[X]` passes for a class in some releases of Python.
    kinds = [typing.get_origin(kind) or kind for kind in kinds]
    return next((kind for kind in kinds if isinstance(kind, type) and kind not in _NOT_RESULTS), None)


def _result(module, api, kind, given):
    if kind is None:
        return None
    repository = _repository_id(api, given)
    endpoint = getattr(api, "endpoint", None) or module.constants.ENDPOINT
    prefix = {"dataset": "datasets/", "space": "spaces/"}.get(given.get("repo_type"), "")
    url = f"{endpoint}/{prefix}{repository}"
    if issubclass(kind, module.RepoUrl):
        _created.add(repository)
        return kind(url, endpoint=endpoint) if kind is module.RepoUrl else _url_of(kind, url, endpoint)
    if issubclass(kind, module.CommitInfo):
        return kind(
            commit_url=f"{url}/commit/{NO_COMMIT}",
            commit_message=given.get("commit_message") or "",
            commit_description=given.get("commit_description") or "",
            oid=NO_COMMIT,
            **({"pr_url": f"{url}/discussions/1"} if given.get("create_pr") else {}),
        )
    if kind is str:
        return url
    if kind.__name__ == "BucketUrl":
        return kind(url=f"{endpoint}/buckets/{_name_with_owner(api, given, given.get('bucket_id'))}")
    return blank(kind)


def _url_of(kind, url, endpoint):
    try:
        return kind(url, endpoint=endpoint)
    except TypeError:  # a kind of address that knows more
        found = str.__new__(kind, url)
        for name, value in vars(kind.__mro__[1](url, endpoint=endpoint)).items():
            setattr(found, name, value)
        return found


def _repository_id(api, given):
    return _name_with_owner(api, given, given.get("to_id") or given.get("repo_id") or given.get("from_id"))


def _name_with_owner(api, given, name):
    name = str(name or "rehearsal")
    if "/" in name:
        return name
    try:
        # Only reads; fails at once where nobody is logged in.
        owner = api.whoami(token=given.get("token"))["name"]
    except Exception:
        owner = NOBODY
    return f"{owner}/{name}"


def blank(kind):
    """Return an instance of a class that nobody has filled in."""
    if kind in _SIMPLE.values():
        return kind()
    if kind is dt.datetime:
        return dt.datetime.now(dt.timezone.utc)
    if not dataclasses.is_dataclass(kind):
        return object.__new__(kind)
    found = kind.__new__(kind)
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        hints = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            hint = hints.get(field.name)
            hint = typing.get_origin(hint) or hint
            value = blank(hint) if hint is dt.datetime or hint in _SIMPLE.values() else None
        object.__setattr__(found, field.name, value)
    return found


def _reading(module, name, method):
    """Make a method that finds an empty repository where the script believes to have created one."""
    missing = getattr(module, "RepositoryNotFoundError", ())  # releases before 0.9 have none

    def read(self, repo_id, *arguments, **named):
        try:
            found = method(self, repo_id, *arguments, **named)
            # An iterator asks only when it is asked.
            return list(found) if inspect.isgenerator(found) else found
        except missing:
            full_name = _name_with_owner(self, named, repo_id)
            if full_name not in _created:
                raise
            return _empty_repository(module, name, full_name, named.get("repo_type"))

    if inspect.isgeneratorfunction(inspect.unwrap(method)):

        def listing(self, repo_id, *arguments, **named):
            yield from read(self, repo_id, *arguments, **named)

        return listing
    return read


def _empty_repository(module, name, repo_id, repo_type):
    if not name.endswith("_info"):
        return blank(module.GitRefs) if name == "list_repo_refs" else []
    kind = repo_type or "model" if name == "repo_info" else name.partition("_")[0]
    info = {"dataset": module.DatasetInfo, "space": module.SpaceInfo}.get(kind, module.ModelInfo)
    known = {"id": repo_id, "sha": NO_COMMIT, "private": False, "siblings": [], "tags": []}
    return info(**known, downloads=0, likes=0)


def patch_downloads(module):
    """Miss a file, and not the repository, where the script believes to have created one."""

    def make(download):
        def downloading(repo_id, *arguments, **named):
            from huggingface_hub import errors

            try:
                return download(repo_id, *arguments, **named)
            except errors.RepositoryNotFoundError as error:
                if repo_id not in _created:
                    raise
                missing = getattr(errors, "RemoteEntryNotFoundError", errors.EntryNotFoundError)
                text = f"no file in {repo_id}: nothing is uploaded in a rehearsal"
                raise missing(text, response=error.response) from error

        return downloading

    replace(module, "hf_hub_download", make)


def patch_requests(module):
    """Refuse requests that would change something, should a method be new to us."""

    def refuse(method, url):
        path = str(url).partition("?")[0].lower()
        method = str(method).upper()
        if method in {"GET", "HEAD", "OPTIONS"}:
            return
        reads = any(part in path for part in READING_REQUESTS)
        if method != "POST" or ("/api/" in path and not reads) or "/info/lfs" in path:
            suppressed("changing data on the Hugging Face Hub")
            raise ConnectionError(f"no changes on the Hugging Face Hub in a rehearsal: {method} {path}")

    def before_request(hook):
        def checking(request, *arguments, **named):
            refuse(request.method, request.url)
            return hook(request, *arguments, **named)

        return checking

    def before_send(send):
        def checking(self, request, *arguments, **named):
            refuse(request.method, request.url)
            return send(self, request, *arguments, **named)

        return checking

    # Releases on httpx have the first, those on requests the second.
    replace(module, "hf_request_event_hook", before_request)
    if hasattr(module, "UniqueRequestIdAdapter"):
        replace(module.UniqueRequestIdAdapter, "send", before_send)


def patch_cards(module):
    """Leave out the check of a card's text, which sends it to the Hub."""
    replace(module.RepoCard, "validate", lambda _: lambda *_, **__: None)


def patch_datasets(module):
    """Replace `push_to_hub` of datasets, which looks at what it has just uploaded."""

    def pushed(_dataset, repo_id, *_, commit_message=None, token=None, create_pr=False, **__):
        from huggingface_hub import hf_api

        given = {"repo_id": repo_id, "repo_type": "dataset", "token": token, "create_pr": create_pr}
        given["commit_message"] = commit_message or "Upload dataset"
        return _result(hf_api, hf_api.HfApi(), hf_api.CommitInfo, given)

    for name in ("Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict"):
        kind = getattr(module, name, None)
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            replace(kind, "push_to_hub", instead("push_to_hub of a dataset to the Hugging Face Hub", pushed))


def patch_repository(module):
    """Replace what pushes from the working copy by git, which releases before 1.0 have."""

    def pushed(repository, *_, blocking=True, **__):
        # The address of the commit, and with blocking=False also the command in progress.
        url = f"file://{getattr(repository, 'local_dir', '')}"
        return url if blocking else (url, blank(module.CommandInProgress))

    for name in ("git_push", "push_to_hub"):
        replace(module.Repository, name, instead("git push to the Hugging Face Hub", pushed))
