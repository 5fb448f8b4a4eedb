"""The forms of brimful's documents. Made from the Rust types by `cargo xtask generate`: do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class AllocatorVariable:
    """A variable that configures torch's allocator."""

    name: str
    """Its name."""
    value: str
    """Its value."""
    read_by_torch: bool | None
    """Whether the installed torch reads it."""

    @classmethod
    def _from_json(cls, data: Any) -> AllocatorVariable:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            value=data["value"],
            read_by_torch=data["read_by_torch"],
        )


@dataclass(frozen=True, slots=True)
class Brim:
    """The nearest limit that kills."""

    limit_bytes: int | None
    """The limit."""
    set_by: str | None
    """What sets it, in words."""
    kind: str | None
    """What sets it: `physical_memory`, `cgroup_v1`, `cgroup_v2`, `hidden_cgroup` or `given`."""
    cgroup_path: str | None
    """The path of the cgroup that sets it; `null` if none does."""

    @classmethod
    def _from_json(cls, data: Any) -> Brim:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            limit_bytes=data["limit_bytes"],
            set_by=data["set_by"],
            kind=data["kind"],
            cgroup_path=data["cgroup_path"],
        )


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One memory cgroup."""

    version: int
    """1 or 2."""
    path: str
    """The path of the cgroup."""
    max_bytes: int | Literal["unlimited"] | None
    """The limit that kills (`memory.max`, `memory.limit_in_bytes`)."""
    high_bytes: int | Literal["unlimited"] | None
    """The limit that throttles (`memory.high`)."""
    used_bytes: int | None
    """All memory charged to the cgroup."""
    reclaimable_bytes: int | None
    """The part that the kernel reclaims before it kills."""
    unreclaimable_bytes: int | None
    """The part that cannot be reclaimed while its processes run."""
    anon_bytes: int | None
    """Private memory of processes."""
    shmem_bytes: int | None
    """Shared memory and tmpfs."""
    swap_left_bytes: int | Literal["unlimited"] | None
    """Swap that the cgroup can still use."""
    oom_group: bool | None
    """Whether an OOM kill ends every process in the cgroup."""
    oom_kill_disabled: bool | None
    """Whether the kernel suspends processes instead of killing one (cgroup v1)."""

    @classmethod
    def _from_json(cls, data: Any) -> Cgroup:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            version=data["version"],
            path=data["path"],
            max_bytes=data["max_bytes"],
            high_bytes=data["high_bytes"],
            used_bytes=data["used_bytes"],
            reclaimable_bytes=data["reclaimable_bytes"],
            unreclaimable_bytes=data["unreclaimable_bytes"],
            anon_bytes=data["anon_bytes"],
            shmem_bytes=data["shmem_bytes"],
            swap_left_bytes=data["swap_left_bytes"],
            oom_group=data["oom_group"],
            oom_kill_disabled=data["oom_kill_disabled"],
        )


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs."""

    usable: float | None
    """The number of usable CPUs; a quota may allow a fraction."""
    limited_by: str | None
    """What limits the number: `machine`, `affinity`, `cpuset` or `quota`."""
    online: int | None
    """The number that `os.cpu_count()` returns."""
    affinity: int | None
    """Allowed by the affinity mask."""
    cpuset: int | Literal["unlimited"] | None
    """Allowed by the cgroup cpuset."""
    quota: float | Literal["unlimited"] | None
    """Allowed by the cgroup CPU quota."""

    @classmethod
    def _from_json(cls, data: Any) -> Cpus:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            usable=data["usable"],
            limited_by=data["limited_by"],
            online=data["online"],
            affinity=data["affinity"],
            cpuset=data["cpuset"],
            quota=data["quota"],
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of this machine."""

    id: str
    """Its ID in the catalogue of findings."""
    severity: str
    """`fatal`, `risk` or `note`."""
    summary: str
    """What will happen."""
    evidence: tuple[str, ...]
    """The evidence."""
    remedies: tuple[str, ...]
    """What to do, cheapest first."""

    @classmethod
    def _from_json(cls, data: Any) -> Finding:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            id=data["id"],
            severity=data["severity"],
            summary=data["summary"],
            evidence=tuple(data["evidence"]),
            remedies=tuple(data["remedies"]),
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """A value that is unknown."""

    path: str
    """The path of the `null` in this document, such as `host.brim.limit_bytes`."""
    reason: str
    """Why it is unknown."""

    @classmethod
    def _from_json(cls, data: Any) -> Gap:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            path=data["path"],
            reason=data["reason"],
        )


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    vendor: str
    """`nvidia` or `amd`."""
    name: str | None
    """The product name."""
    uuid: str | None
    """Its UUID."""
    compute_capability: str | None
    """The compute capability, such as `7.5`."""
    multiprocessors: int | None
    """Streaming multiprocessors or compute units."""
    total_bytes: int | None
    """Total memory as reported by NVML."""
    used_bytes: int | None
    """Memory in use by processes."""
    reserved_bytes: int | None
    """Memory reserved by the driver."""
    torch_visible_bytes: int | None
    """Total memory as reported by torch."""
    torch_visible_by: str | None
    """The source of that value: `driver`, `measured`, `data sheet` or `estimated`."""
    torch_sees_it: bool | None
    """Whether torch will see it."""
    torch_index: int | None
    """The `n` of `cuda:n`, if torch will see it."""
    processes: tuple[GpuProcess, ...] | None
    """Processes that hold its memory."""
    ecc: bool | None
    """Whether error correction (ECC) is enabled."""
    mig_enabled: bool | None
    """Whether multi-instance (MIG) mode is enabled."""
    mig_instances: tuple[MigInstance, ...]
    """The MIG instances."""

    @classmethod
    def _from_json(cls, data: Any) -> Gpu:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            vendor=data["vendor"],
            name=data["name"],
            uuid=data["uuid"],
            compute_capability=data["compute_capability"],
            multiprocessors=data["multiprocessors"],
            total_bytes=data["total_bytes"],
            used_bytes=data["used_bytes"],
            reserved_bytes=data["reserved_bytes"],
            torch_visible_bytes=data["torch_visible_bytes"],
            torch_visible_by=data["torch_visible_by"],
            torch_sees_it=data["torch_sees_it"],
            torch_index=data["torch_index"],
            processes=None if data["processes"] is None else tuple(GpuProcess._from_json(item) for item in data["processes"]),
            ecc=data["ecc"],
            mig_enabled=data["mig_enabled"],
            mig_instances=tuple(MigInstance._from_json(item) for item in data["mig_instances"]),
        )


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds GPU memory."""

    pid: int
    """Its PID; in a container, the PID on the host."""
    name: str | None
    """Its name, if it is visible."""
    used_bytes: int | None
    """GPU memory that it holds."""

    @classmethod
    def _from_json(cls, data: Any) -> GpuProcess:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            pid=data["pid"],
            name=data["name"],
            used_bytes=data["used_bytes"],
        )


@dataclass(frozen=True, slots=True)
class Host:
    """Host memory."""

    physical_bytes: int | None
    """Physical memory, as reported by psutil."""
    available_bytes: int | None
    """The kernel's estimate of the memory available without swapping."""
    swap_total_bytes: int | None
    """Swap of the machine."""
    swap_free_bytes: int | None
    """Unused swap."""
    brim: Brim
    """The nearest limit that kills."""
    headroom_bytes: int | None
    """Bytes left before the kernel kills, without swap."""
    swap_headroom_bytes: int | None
    """Swap available in addition to the headroom."""
    limits: tuple[Limit, ...]
    """Every limit, from the cgroup of the process to physical memory."""
    cgroups: tuple[Cgroup, ...] | None
    """The memory cgroups, that of the process first."""
    hidden_groups: str | None
    """Parents of the visible cgroups: `none`, `own_group` (not even the cgroup of the process is visible), `unknown`, `none_lower` (parents without a lower limit) or `limit` (a parent with a lower limit). With `own_group`, `unknown` and `limit` the headroom is an upper bound."""
    overcommit: Overcommit | None
    """Memory overcommit."""
    pressure: Pressure | None
    """How long tasks were stalled on memory."""
    oom_score_adj: int | None
    """The priority of this process for the kernel OOM killer: -1000 never, 1000 first."""
    killers: tuple[Killer, ...] | None
    """User-space OOM killers."""

    @classmethod
    def _from_json(cls, data: Any) -> Host:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            physical_bytes=data["physical_bytes"],
            available_bytes=data["available_bytes"],
            swap_total_bytes=data["swap_total_bytes"],
            swap_free_bytes=data["swap_free_bytes"],
            brim=Brim._from_json(data["brim"]),
            headroom_bytes=data["headroom_bytes"],
            swap_headroom_bytes=data["swap_headroom_bytes"],
            limits=tuple(Limit._from_json(item) for item in data["limits"]),
            cgroups=None if data["cgroups"] is None else tuple(Cgroup._from_json(item) for item in data["cgroups"]),
            hidden_groups=data["hidden_groups"],
            overcommit=None if data["overcommit"] is None else Overcommit._from_json(data["overcommit"]),
            pressure=None if data["pressure"] is None else Pressure._from_json(data["pressure"]),
            oom_score_adj=data["oom_score_adj"],
            killers=None if data["killers"] is None else tuple(Killer._from_json(item) for item in data["killers"]),
        )


@dataclass(frozen=True, slots=True)
class Isolation:
    """How rehearsals (`predict`, `plan`, `init`) can be isolated from the user's files."""

    expected: str | None
    """The isolation that a rehearsal is expected to use: `overlay`, `redirect`, or `none` if it is expected to refuse. A probe does not test it; the rehearsal itself verifies its isolation and reports which one it used."""
    reason: str | None
    """Why, in words."""
    cap_sys_admin: bool | None
    """Whether this process can mount without a user namespace (`CAP_SYS_ADMIN`)."""
    user_namespaces: bool | None
    """Whether the kernel supports user namespaces."""
    max_user_namespaces: int | None
    """`user.max_user_namespaces`."""
    unprivileged_userns_clone: bool | None
    """`kernel.unprivileged_userns_clone`; true in kernels without this setting."""
    apparmor_restrict_unprivileged_userns: bool | None
    """`kernel.apparmor_restrict_unprivileged_userns`; false in kernels without this setting."""
    apparmor_profile: str | None
    """The AppArmor profile of this process; `null` if AppArmor is not in use."""
    apparmor_enforced: bool | None
    """Whether AppArmor enforces that profile."""
    seccomp_filter: bool | None
    """Whether a seccomp filter is in force."""
    overlay_filesystem: bool | None
    """Whether the kernel supports overlayfs, built in or as a module."""
    scratch_directory: str | None
    """The directory in which a rehearsal is expected to store what the script writes."""
    scratch_filesystem: str | None
    """The file system of that directory."""
    landlock_abi: int | None
    """The Landlock ABI version; 0 if it is not available."""

    @classmethod
    def _from_json(cls, data: Any) -> Isolation:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            expected=data["expected"],
            reason=data["reason"],
            cap_sys_admin=data["cap_sys_admin"],
            user_namespaces=data["user_namespaces"],
            max_user_namespaces=data["max_user_namespaces"],
            unprivileged_userns_clone=data["unprivileged_userns_clone"],
            apparmor_restrict_unprivileged_userns=data["apparmor_restrict_unprivileged_userns"],
            apparmor_profile=data["apparmor_profile"],
            apparmor_enforced=data["apparmor_enforced"],
            seccomp_filter=data["seccomp_filter"],
            overlay_filesystem=data["overlay_filesystem"],
            scratch_directory=data["scratch_directory"],
            scratch_filesystem=data["scratch_filesystem"],
            landlock_abi=data["landlock_abi"],
        )


@dataclass(frozen=True, slots=True)
class Killer:
    """A user-space OOM killer."""

    name: str
    """Its name."""
    pid: int
    """Its PID."""
    acts_when: str
    """When it acts by default."""
    arguments: tuple[str, ...]
    """Its command-line arguments."""

    @classmethod
    def _from_json(cls, data: Any) -> Killer:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            pid=data["pid"],
            acts_when=data["acts_when"],
            arguments=tuple(data["arguments"]),
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit on host memory."""

    limit_bytes: int
    """The limit."""
    set_by: str
    """What sets it, in words."""
    kind: str
    """What sets it, as in `brim.kind`."""
    cgroup_path: str | None
    """The path of the cgroup that sets it; `null` if none does."""
    effect: str
    """`kills` or `throttles`."""
    headroom_bytes: int | None
    """Bytes left before it acts."""

    @classmethod
    def _from_json(cls, data: Any) -> Limit:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            limit_bytes=data["limit_bytes"],
            set_by=data["set_by"],
            kind=data["kind"],
            cgroup_path=data["cgroup_path"],
            effect=data["effect"],
            headroom_bytes=data["headroom_bytes"],
        )


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A part of a GPU in multi-instance mode."""

    name: str | None
    """Its name."""
    uuid: str | None
    """Its UUID, as `CUDA_VISIBLE_DEVICES` accepts it."""
    total_bytes: int | None
    """Its memory."""
    used_bytes: int | None
    """Memory in use."""
    torch_index: int | None
    """The `n` of `cuda:n`, if torch will see it."""

    @classmethod
    def _from_json(cls, data: Any) -> MigInstance:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            uuid=data["uuid"],
            total_bytes=data["total_bytes"],
            used_bytes=data["used_bytes"],
            torch_index=data["torch_index"],
        )


@dataclass(frozen=True, slots=True)
class Overcommit:
    """Memory overcommit."""

    mode: str
    """`heuristic`, `always` or `never`."""
    commit_limit_bytes: int | None
    """The commit limit in mode `never`."""
    committed_bytes: int | None
    """Committed memory."""

    @classmethod
    def _from_json(cls, data: Any) -> Overcommit:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            mode=data["mode"],
            commit_limit_bytes=data["commit_limit_bytes"],
            committed_bytes=data["committed_bytes"],
        )


@dataclass(frozen=True, slots=True)
class Platform:
    """Where the process runs."""

    name: str
    """`colab`, `kaggle`, `sagemaker`, `slurm`, `kubernetes`, `podman`, `docker`, `apptainer`, `lxc`, `wsl` or `plain`."""
    layers: tuple[PlatformLayer, ...]
    """Every layer that was recognized, the most specific first."""
    system: str | None
    """The kernel and the distribution."""
    slurm: SlurmJob | None
    """What the job requested from Slurm."""

    @classmethod
    def _from_json(cls, data: Any) -> Platform:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            layers=tuple(PlatformLayer._from_json(item) for item in data["layers"]),
            system=data["system"],
            slurm=None if data["slurm"] is None else SlurmJob._from_json(data["slurm"]),
        )


@dataclass(frozen=True, slots=True)
class PlatformLayer:
    """One recognized layer."""

    name: str
    """Its name."""
    evidence: str
    """How it was recognized."""

    @classmethod
    def _from_json(cls, data: Any) -> PlatformLayer:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            evidence=data["evidence"],
        )


@dataclass(frozen=True, slots=True)
class Pressure:
    """Share of time, in percent, in which tasks were stalled on memory."""

    some_avg10_percent: float
    """Some task was stalled, last 10 seconds."""
    some_avg60_percent: float
    """Some task was stalled, last minute."""
    full_avg10_percent: float
    """All tasks were stalled, last 10 seconds."""
    full_avg60_percent: float
    """All tasks were stalled, last minute."""

    @classmethod
    def _from_json(cls, data: Any) -> Pressure:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            some_avg10_percent=data["some_avg10_percent"],
            some_avg60_percent=data["some_avg60_percent"],
            full_avg10_percent=data["full_avg10_percent"],
            full_avg60_percent=data["full_avg60_percent"],
        )


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of each process, set by the kernel."""

    address_space_bytes: int | Literal["unlimited"] | None
    """RLIMIT_AS."""
    data_bytes: int | Literal["unlimited"] | None
    """RLIMIT_DATA."""
    locked_memory_bytes: int | Literal["unlimited"] | None
    """RLIMIT_MEMLOCK."""
    open_files: int | Literal["unlimited"] | None
    """RLIMIT_NOFILE."""
    max_map_count: int | None
    """`vm.max_map_count`."""

    @classmethod
    def _from_json(cls, data: Any) -> ProcessLimits:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            address_space_bytes=data["address_space_bytes"],
            data_bytes=data["data_bytes"],
            locked_memory_bytes=data["locked_memory_bytes"],
            open_files=data["open_files"],
            max_map_count=data["max_map_count"],
        )


@dataclass(frozen=True, slots=True)
class Python:
    """The Python that would run the job."""

    executable: str
    """Its executable."""
    version: str | None
    """Its version, such as `3.12`."""
    found_by: str
    """How it was chosen."""
    torch: Torch | None
    """Its torch."""

    @classmethod
    def _from_json(cls, data: Any) -> Python:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            executable=data["executable"],
            version=data["version"],
            found_by=data["found_by"],
            torch=None if data["torch"] is None else Torch._from_json(data["torch"]),
        )


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory."""

    path: str
    """Where it is mounted."""
    total_bytes: int | None
    """Its size."""
    free_bytes: int | None
    """Free space."""
    counts_against_brim: bool | None
    """Whether its contents count against the memory limit."""

    @classmethod
    def _from_json(cls, data: Any) -> SharedMemory:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            path=data["path"],
            total_bytes=data["total_bytes"],
            free_bytes=data["free_bytes"],
            counts_against_brim=data["counts_against_brim"],
        )


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """What the job requested from Slurm."""

    job_id: str
    """The job ID."""
    memory_request_bytes: int | None
    """Memory requested on this node; `null` if the whole node was requested."""
    whole_node: bool | None
    """Whether all of the memory of the node was requested (`--mem=0`)."""
    cpus_on_node: int | None
    """CPUs allocated on this node."""

    @classmethod
    def _from_json(cls, data: Any) -> SlurmJob:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            job_id=data["job_id"],
            memory_request_bytes=data["memory_request_bytes"],
            whole_node=data["whole_node"],
            cpus_on_node=data["cpus_on_node"],
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """Which machine is described."""

    kind: str
    """`this_machine`, or `profile` for a recorded one."""
    profile: str | None
    """The profile's name."""
    sources: tuple[str, ...]
    """Sources of the recorded values."""
    replaced: tuple[str, ...]
    """Values that the user replaced, such as another GPU."""

    @classmethod
    def _from_json(cls, data: Any) -> Subject:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            kind=data["kind"],
            profile=data["profile"],
            sources=tuple(data["sources"]),
            replaced=tuple(data["replaced"]),
        )


@dataclass(frozen=True, slots=True)
class Torch:
    """An installed torch."""

    version: str
    """The version, such as `2.9.1+cu128`."""
    build: str | None
    """The platform it was built for, such as `CUDA 12.8` or `CPU only`."""
    kernels_for: tuple[str, ...] | None
    """Compute capabilities that the official build has kernels for, if known."""

    @classmethod
    def _from_json(cls, data: Any) -> Torch:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            version=data["version"],
            build=data["build"],
            kernels_for=None if data["kernels_for"] is None else tuple(data["kernels_for"]),
        )


@dataclass(frozen=True, slots=True)
class ProbeDocument:
    """The effective memory limits of a machine, and its problems."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    subject: Subject
    """Which machine is described."""
    host: Host
    """Host memory."""
    shm: SharedMemory
    """Shared memory, which DataLoader workers use to pass batches."""
    process_limits: ProcessLimits
    """Limits of each process, set by the kernel."""
    cpus: Cpus
    """Usable CPUs."""
    gpus: tuple[Gpu, ...]
    """GPUs, visible to torch or not."""
    gpu_driver_version: str | None
    """The version of the NVIDIA driver."""
    gpu_driver_cuda: str | None
    """The newest CUDA version that the driver supports, such as `12.4`."""
    gpu_visible_devices: str | None
    """The variable that hides GPUs from torch, as `NAME=VALUE`; `null` if none is set."""
    platform: Platform
    """Where the process runs."""
    isolation: Isolation | None
    """How rehearsals can be isolated from the user's files."""
    python: Python | None
    """The Python that would run the job."""
    allocator_variables: tuple[AllocatorVariable, ...]
    """Variables that configure torch's allocator, if they are set."""
    findings: tuple[Finding, ...]
    """Problems, most severe first."""
    gaps: tuple[Gap, ...]
    """Why facts are missing."""

    @classmethod
    def _from_json(cls, data: Any) -> ProbeDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            subject=Subject._from_json(data["subject"]),
            host=Host._from_json(data["host"]),
            shm=SharedMemory._from_json(data["shm"]),
            process_limits=ProcessLimits._from_json(data["process_limits"]),
            cpus=Cpus._from_json(data["cpus"]),
            gpus=tuple(Gpu._from_json(item) for item in data["gpus"]),
            gpu_driver_version=data["gpu_driver_version"],
            gpu_driver_cuda=data["gpu_driver_cuda"],
            gpu_visible_devices=data["gpu_visible_devices"],
            platform=Platform._from_json(data["platform"]),
            isolation=None if data["isolation"] is None else Isolation._from_json(data["isolation"]),
            python=None if data["python"] is None else Python._from_json(data["python"]),
            allocator_variables=tuple(AllocatorVariable._from_json(item) for item in data["allocator_variables"]),
            findings=tuple(Finding._from_json(item) for item in data["findings"]),
            gaps=tuple(Gap._from_json(item) for item in data["gaps"]),
        )


@dataclass(frozen=True, slots=True)
class AllocatorAlternative:
    """Allocator settings with which PyTorch would reserve less."""

    alloc_conf: str
    """As in `PYTORCH_ALLOC_CONF`."""
    peak_reserved_bytes: int
    """Peak of reserved bytes with these settings."""
    fits: bool
    """Whether the run then fits on the GPU, by the safe value."""

    @classmethod
    def _from_json(cls, data: Any) -> AllocatorAlternative:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            alloc_conf=data["alloc_conf"],
            peak_reserved_bytes=data["peak_reserved_bytes"],
            fits=data["fits"],
        )


@dataclass(frozen=True, slots=True)
class BudgetTerm:
    """One use of GPU memory."""

    name: str
    """`weights`, `gradients`, `optimizer_state`, `activations`, `temporaries`, `workspaces`, `other`, `rounding`, `cached` (reserved by PyTorch but unused: fragmentation), `context` or `nccl`."""
    likely_bytes: int
    """Bytes at the peak of allocated memory; for `cached`, reserved bytes above that at the peak."""
    safe_bytes: int
    """The safe value, which includes the uncertainty of this term."""
    by_phase: tuple[PhaseBytes, ...]
    """Bytes at the peak of each phase."""

    @classmethod
    def _from_json(cls, data: Any) -> BudgetTerm:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            likely_bytes=data["likely_bytes"],
            safe_bytes=data["safe_bytes"],
            by_phase=tuple(PhaseBytes._from_json(item) for item in data["by_phase"]),
        )


@dataclass(frozen=True, slots=True)
class Containment:
    """How each kind of thing that a script can reach was kept from it: what was set up, and proved before the script started. `namespace`: the script had its own. `redirected`: a library redirected it to its own, and the kernel denied the rest. `denied`: the kernel denied it. `open`: the script could reach it."""

    files: str
    """Files and directories: `namespace` (isolation `overlay`), `redirected` or `open`."""
    shared_memory: str
    """Shared memory and semaphores by name: `namespace`, `redirected` or `open`."""
    ipc: str
    """System V shared memory, semaphores and queues, and POSIX message queues: `namespace`, `denied` or `open`."""
    processes: str
    """Signals to other processes, their priorities and limits: `namespace`, `denied`, `signals_denied` (priorities and limits could be changed) or `open`."""
    network: str
    """Other hosts and services on this machine: `denied` (`--network none`) or `open`, with what was connected to in `connections` and `sockets`."""
    devices: str
    """GPUs: as `gpu_hidden`."""

    @classmethod
    def _from_json(cls, data: Any) -> Containment:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            files=data["files"],
            shared_memory=data["shared_memory"],
            ipc=data["ipc"],
            processes=data["processes"],
            network=data["network"],
            devices=data["devices"],
        )


@dataclass(frozen=True, slots=True)
class ContextMeasurement:
    """What earlier runs on this GPU model held outside PyTorch's allocator, used in place of the calculated CUDA context."""

    bytes: int
    """Bytes."""
    runs: int
    """Number of runs that were measured."""
    same_job: bool
    """Whether it is from the last run of this job; otherwise it is the median of the runs."""
    torch_version: str
    """The release of PyTorch of these runs."""
    driver_version: str | None
    """The version of the driver; `null` if it is not known."""

    @classmethod
    def _from_json(cls, data: Any) -> ContextMeasurement:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            bytes=data["bytes"],
            runs=data["runs"],
            same_job=data["same_job"],
            torch_version=data["torch_version"],
            driver_version=data["driver_version"],
        )


@dataclass(frozen=True, slots=True)
class CurveColumn:
    """One interval of the memory curve: its highest values."""

    allocated_bytes: int
    """Allocated bytes."""
    reserved_bytes: int
    """Reserved bytes."""
    step: int
    """Number of completed steps."""

    @classmethod
    def _from_json(cls, data: Any) -> CurveColumn:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            allocated_bytes=data["allocated_bytes"],
            reserved_bytes=data["reserved_bytes"],
            step=data["step"],
        )


@dataclass(frozen=True, slots=True)
class FailedGpu:
    """A GPU on which the script failed."""

    name: str
    """The GPU."""
    reason: str
    """The last line that the script wrote."""

    @classmethod
    def _from_json(cls, data: Any) -> FailedGpu:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            reason=data["reason"],
        )


@dataclass(frozen=True, slots=True)
class GpuFit:
    """Whether the run fits on a GPU."""

    name: str
    """The GPU."""
    total_bytes: int
    """Total memory that PyTorch sees."""
    fits: bool
    """Whether it fits, by the safe value."""
    verdict: str
    """`fits`, `tight` (the likely value fits but the safe value or the worst case does not, or the value is an upper bound) or `does_not_fit`."""
    headroom_bytes: int
    """Bytes left, by the safe value of the worst case; negative if it does not fit."""
    is_lower_bound: bool
    """Whether the values end where GPU memory ran out, because the script failed when it was rehearsed with more. A whole run needs at least as much."""
    device_bytes: LikelyAndSafe
    """Peak GPU memory of the process."""
    worst_case_bytes: LikelyAndSafe | None
    """The same in the worst case, if shapes depend on values that only a real model computes: masks select all of their elements, and nearly all choices (for example of experts) are the same. Otherwise `null`."""
    peak_reserved_bytes: int
    """Peak of reserved bytes."""
    peak_allocated_bytes: int
    """Peak of allocated bytes."""
    retries: int
    """Number of times PyTorch frees cached memory and retries."""
    alloc_conf: str
    """The allocator settings, as in `PYTORCH_CUDA_ALLOC_CONF`."""
    alternative: AllocatorAlternative | None
    """Allocator settings with which PyTorch would reserve less; `null` if little is unused."""
    measured_context: ContextMeasurement | None
    """The CUDA context in `device_bytes`, if earlier runs measured it; `null` if it is calculated."""
    speed: PredictedSpeed | None
    """How fast the training is there; `null` if it could not be predicted."""

    @classmethod
    def _from_json(cls, data: Any) -> GpuFit:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            total_bytes=data["total_bytes"],
            fits=data["fits"],
            verdict=data["verdict"],
            headroom_bytes=data["headroom_bytes"],
            is_lower_bound=data["is_lower_bound"],
            device_bytes=LikelyAndSafe._from_json(data["device_bytes"]),
            worst_case_bytes=None if data["worst_case_bytes"] is None else LikelyAndSafe._from_json(data["worst_case_bytes"]),
            peak_reserved_bytes=data["peak_reserved_bytes"],
            peak_allocated_bytes=data["peak_allocated_bytes"],
            retries=data["retries"],
            alloc_conf=data["alloc_conf"],
            alternative=None if data["alternative"] is None else AllocatorAlternative._from_json(data["alternative"]),
            measured_context=None if data["measured_context"] is None else ContextMeasurement._from_json(data["measured_context"]),
            speed=None if data["speed"] is None else PredictedSpeed._from_json(data["speed"]),
        )


@dataclass(frozen=True, slots=True)
class HostBudgetTerm:
    """One use of host memory."""

    name: str
    """`program`, `dataset`, `training`, `worker_programs`, `worker_copies`, `making_batches`, `pickle_buffer`, `batches`, `pinned` or `checkpoint`."""
    likely_bytes: int
    """The likely value in bytes."""
    safe_bytes: int
    """The safe value, which includes the uncertainty of this term."""
    reason: str | None
    """An explanation, if there is one."""

    @classmethod
    def _from_json(cls, data: Any) -> HostBudgetTerm:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            likely_bytes=data["likely_bytes"],
            safe_bytes=data["safe_bytes"],
            reason=data["reason"],
        )


@dataclass(frozen=True, slots=True)
class HostByWorkers:
    """Host memory with another number of workers."""

    start_method: str
    """`fork`, `forkserver` or `spawn`."""
    workers: int
    """Number of DataLoader workers."""
    bytes: LikelyAndSafe
    """Peak host memory."""
    shm_bytes: LikelyAndSafe
    """The part of it in `/dev/shm`."""

    @classmethod
    def _from_json(cls, data: Any) -> HostByWorkers:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            start_method=data["start_method"],
            workers=data["workers"],
            bytes=LikelyAndSafe._from_json(data["bytes"]),
            shm_bytes=LikelyAndSafe._from_json(data["shm_bytes"]),
        )


@dataclass(frozen=True, slots=True)
class HostConnection:
    """A host that the script connected to; this machine for its services."""

    host: str
    """Its name, or its address where no name was looked up."""
    port: int
    """The port."""
    count: int
    """How many processes connected to it."""

    @classmethod
    def _from_json(cls, data: Any) -> HostConnection:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            host=data["host"],
            port=data["port"],
            count=data["count"],
        )


@dataclass(frozen=True, slots=True)
class LargestUse:
    """A group of large allocations."""

    kind: str
    """`weights`, `gradients`, …, as in `terms`."""
    made_by: str
    """The tensor, or the module or phase that allocated it."""
    count: int
    """Number of allocations."""
    bytes: int
    """Bytes of all of them."""

    @classmethod
    def _from_json(cls, data: Any) -> LargestUse:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            kind=data["kind"],
            made_by=data["made_by"],
            count=data["count"],
            bytes=data["bytes"],
        )


@dataclass(frozen=True, slots=True)
class LikelyAndSafe:
    """A value and one that 95 of 100 runs stay below."""

    likely: int
    """The most likely value."""
    safe: int
    """What 95 of 100 runs stay below."""

    @classmethod
    def _from_json(cls, data: Any) -> LikelyAndSafe:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            likely=data["likely"],
            safe=data["safe"],
        )


@dataclass(frozen=True, slots=True)
class LowLikelyHigh:
    """A range: eight of ten measured runs were inside."""

    low: float
    """The low end."""
    likely: float
    """The likely value."""
    high: float
    """The high end."""

    @classmethod
    def _from_json(cls, data: Any) -> LowLikelyHigh:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            low=data["low"],
            likely=data["likely"],
            high=data["high"],
        )


@dataclass(frozen=True, slots=True)
class MachineGpu:
    """A GPU of this machine, or a MIG instance of one, and what is free on it now."""

    index: int
    """The index of the GPU, as in `nvidia-smi`."""
    name: str
    """The GPU model."""
    total_bytes: int | None
    """Total memory as reported by torch."""
    free_bytes: int | None
    """Memory that a new process can use now."""
    used_bytes: int | None
    """Memory in use by processes."""
    processes: tuple[GpuProcess, ...] | None
    """Processes that hold its memory; `null` if they are not known."""
    fits_now: bool | None
    """Whether the run fits in the memory that is free now, by the safe value; `null` if it is not known."""

    @classmethod
    def _from_json(cls, data: Any) -> MachineGpu:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            index=data["index"],
            name=data["name"],
            total_bytes=data["total_bytes"],
            free_bytes=data["free_bytes"],
            used_bytes=data["used_bytes"],
            processes=None if data["processes"] is None else tuple(GpuProcess._from_json(item) for item in data["processes"]),
            fits_now=data["fits_now"],
        )


@dataclass(frozen=True, slots=True)
class ModuleUse:
    """What a module holds, with everything inside it."""

    name: str
    """The last part of its path and its class, or what else holds the memory."""
    bytes: tuple[int, ...]
    """Bytes of each use."""
    inside: tuple[ModuleUse, ...]
    """The modules inside it, largest first."""

    @classmethod
    def _from_json(cls, data: Any) -> ModuleUse:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            bytes=tuple(data["bytes"]),
            inside=tuple(ModuleUse._from_json(item) for item in data["inside"]),
        )


@dataclass(frozen=True, slots=True)
class PhaseBytes:
    """Bytes in a phase."""

    phase: str
    """`setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`."""
    bytes: int
    """Bytes."""

    @classmethod
    def _from_json(cls, data: Any) -> PhaseBytes:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            phase=data["phase"],
            bytes=data["bytes"],
        )


@dataclass(frozen=True, slots=True)
class PhaseUse:
    """The peak of a phase."""

    phase: str
    """`setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`."""
    allocated_bytes: int
    """Allocated bytes."""
    reserved_bytes: int
    """Reserved bytes."""

    @classmethod
    def _from_json(cls, data: Any) -> PhaseUse:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            phase=data["phase"],
            allocated_bytes=data["allocated_bytes"],
            reserved_bytes=data["reserved_bytes"],
        )


@dataclass(frozen=True, slots=True)
class PredictedHost:
    """Predicted host memory: anonymous and shared memory of all processes of the job."""

    workers: int
    """Number of DataLoader workers, as rehearsed."""
    prefetch: int
    """Batches that each worker prefetches (`prefetch_factor`), as rehearsed."""
    micro_batch: int
    """Batch size, as rehearsed."""
    start_method: str
    """`fork`, `forkserver` or `spawn`, as rehearsed."""
    pin_memory: bool
    """Whether batches are in pinned memory, as rehearsed."""
    persistent_workers: bool
    """Whether workers persist between epochs, as rehearsed."""
    bytes: LikelyAndSafe
    """Peak host memory."""
    shm_bytes: LikelyAndSafe
    """The part of it in `/dev/shm`."""
    terms: tuple[HostBudgetTerm, ...]
    """Memory by use at the peak."""
    by_workers: tuple[HostByWorkers, ...]
    """Predictions for other numbers of workers and start methods; everything else as rehearsed."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictedHost:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            workers=data["workers"],
            prefetch=data["prefetch"],
            micro_batch=data["micro_batch"],
            start_method=data["start_method"],
            pin_memory=data["pin_memory"],
            persistent_workers=data["persistent_workers"],
            bytes=LikelyAndSafe._from_json(data["bytes"]),
            shm_bytes=LikelyAndSafe._from_json(data["shm_bytes"]),
            terms=tuple(HostBudgetTerm._from_json(item) for item in data["terms"]),
            by_workers=tuple(HostByWorkers._from_json(item) for item in data["by_workers"]),
        )


@dataclass(frozen=True, slots=True)
class PredictedPeak:
    """Peak use of a GPU."""

    gpu: str
    """The GPU."""
    allocated_bytes: int
    """Allocated bytes, as `torch.cuda.max_memory_allocated` would report."""
    reserved_bytes: int
    """Reserved bytes, as `torch.cuda.max_memory_reserved` would report."""
    device_bytes: LikelyAndSafe
    """Total GPU memory of the process, including the CUDA context."""
    phase: str
    """The phase of the peak."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictedPeak:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            gpu=data["gpu"],
            allocated_bytes=data["allocated_bytes"],
            reserved_bytes=data["reserved_bytes"],
            device_bytes=LikelyAndSafe._from_json(data["device_bytes"]),
            phase=data["phase"],
        )


@dataclass(frozen=True, slots=True)
class PredictedSpeed:
    """How fast the training is on a GPU, before the first run."""

    steps_per_second: LowLikelyHigh
    """Optimizer steps per second."""
    samples_per_second: LowLikelyHigh | None
    """Samples per second over all GPUs; `null` if the batch size is not known."""
    epoch_seconds: LowLikelyHigh | None
    """Seconds for one pass over the training data, without evaluation; `null` if the size of the data is not known."""
    seconds_by_part: StepSeconds
    """What the GPU's time for one step consists of."""
    basis: str
    """`model` (calculated), `scaled` (calculated, and scaled by a measured run of this job) or `measured`."""
    notes: tuple[str, ...]
    """What makes these values less certain."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictedSpeed:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            steps_per_second=LowLikelyHigh._from_json(data["steps_per_second"]),
            samples_per_second=None if data["samples_per_second"] is None else LowLikelyHigh._from_json(data["samples_per_second"]),
            epoch_seconds=None if data["epoch_seconds"] is None else LowLikelyHigh._from_json(data["epoch_seconds"]),
            seconds_by_part=StepSeconds._from_json(data["seconds_by_part"]),
            basis=data["basis"],
            notes=tuple(data["notes"]),
        )


@dataclass(frozen=True, slots=True)
class PredictedTimeline:
    """The fullest step: memory by use over time, and by module at the peak."""

    step: int
    """The number of the step, from 1."""
    events: int
    """Number of allocations and frees in it."""
    kinds: tuple[str, ...]
    """The uses of memory, in the order of `bytes` in `columns` and `modules`."""
    columns: tuple[StepColumn, ...]
    """At most 480 columns with equal numbers of events; each shows its fullest moment."""
    phases: tuple[StepPhase, ...]
    """Which columns belong to which phase. Empty if phases change too often to be shown."""
    peak_column: int
    """The index of the column with the peak."""
    modules: tuple[ModuleUse, ...]
    """What each module holds at the peak, largest first; at most 70 modules."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictedTimeline:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            step=data["step"],
            events=data["events"],
            kinds=tuple(data["kinds"]),
            columns=tuple(StepColumn._from_json(item) for item in data["columns"]),
            phases=tuple(StepPhase._from_json(item) for item in data["phases"]),
            peak_column=data["peak_column"],
            modules=tuple(ModuleUse._from_json(item) for item in data["modules"]),
        )


@dataclass(frozen=True, slots=True)
class PredictionCaveat:
    """A reason to trust the prediction less."""

    id: str
    """A stable ID, such as `value_dependent_shape`."""
    text: str
    """What it means for this prediction."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictionCaveat:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            id=data["id"],
            text=data["text"],
        )


@dataclass(frozen=True, slots=True)
class SocketConnection:
    """A local socket that the script connected to."""

    path: str
    """Its path, or `@` and its name if it has no path."""
    refused: bool
    """Whether the connection was refused: because of `--network none`, or because the isolation does not reach it."""
    count: int
    """How many processes connected to it."""

    @classmethod
    def _from_json(cls, data: Any) -> SocketConnection:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            path=data["path"],
            refused=data["refused"],
            count=data["count"],
        )


@dataclass(frozen=True, slots=True)
class StepColumn:
    """The fullest moment of a column."""

    bytes: tuple[int, ...]
    """Bytes of each use."""
    allocated_bytes: int
    """Allocated bytes, including rounding."""
    reserved_bytes: int
    """Reserved bytes."""

    @classmethod
    def _from_json(cls, data: Any) -> StepColumn:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            bytes=tuple(data["bytes"]),
            allocated_bytes=data["allocated_bytes"],
            reserved_bytes=data["reserved_bytes"],
        )


@dataclass(frozen=True, slots=True)
class StepPhase:
    """A phase of the step."""

    phase: str
    """`setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`."""
    first_column: int
    """The index of its first column."""
    columns: int
    """Number of columns."""

    @classmethod
    def _from_json(cls, data: Any) -> StepPhase:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            phase=data["phase"],
            first_column=data["first_column"],
            columns=data["columns"],
        )


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of one step on the GPU, by kind of work."""

    matmul: float
    """Matrix products."""
    convolution: float
    """Convolutions."""
    attention: float
    """Fused attention."""
    memory_bound: float
    """Operators limited by memory bandwidth: normalization, activations, copies."""
    optimizer: float
    """The optimizer step."""
    launches: float
    """Gaps between kernels."""

    @classmethod
    def _from_json(cls, data: Any) -> StepSeconds:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            matmul=data["matmul"],
            convolution=data["convolution"],
            attention=data["attention"],
            memory_bound=data["memory_bound"],
            optimizer=data["optimizer"],
            launches=data["launches"],
        )


@dataclass(frozen=True, slots=True)
class PredictDocument:
    """Predicted memory of a training command, on the GPU and on the host."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    command: tuple[str, ...]
    """The rehearsed command."""
    torch_version: str
    """The PyTorch version of the rehearsal."""
    steps: int
    """Number of rehearsed optimizer steps."""
    world_size: int
    """Number of training processes, each with its own GPU."""
    seconds: float
    """How long the rehearsal and the replays took."""
    isolation: str
    """How your files were protected from the script: `overlay`, `redirect`, or `off` if writes were allowed."""
    gpu_hidden: str | None
    """How the GPUs of this machine were hidden from the script: `devices` (they were absent from its `/dev`), `landlock` (it was denied to open them), or `no_driver` if there is nothing to hide. `null` in documents from before they were hidden."""
    containment: Containment | None
    """How each kind of thing that the script could have reached was kept from it. `null` in documents from before it was known."""
    suppressed: tuple[str, ...]
    """Requests of the script to experiment trackers and hubs that were not sent in the rehearsal."""
    connections: tuple[HostConnection, ...]
    """Other hosts, and services on this machine, that the script connected to."""
    sockets: tuple[SocketConnection, ...]
    """Local sockets that the script connected to, or could not."""
    peak: PredictedPeak | None
    """The peak on the first GPU of `gpus`; `terms`, `phases`, `largest` and `curve` describe the same GPU. `null` for training on the CPU."""
    terms: tuple[BudgetTerm, ...]
    """Memory by use at the peak. The sum is the likely GPU memory use."""
    phases: tuple[PhaseUse, ...]
    """The peak of each phase."""
    gpus: tuple[GpuFit, ...]
    """For each requested GPU: whether the run fits, and how much memory is left."""
    gpus_from: str
    """Where the GPU models come from: `requested`, `machine` (this machine's, if none were named) or `usual` (this machine has none that is known)."""
    machine_gpus: tuple[MachineGpu, ...]
    """This machine's GPUs with what is free on each now, if `gpus_from` is `machine`; otherwise empty."""
    failed: tuple[FailedGpu, ...]
    """GPUs on which the script failed before its first step for a reason other than memory."""
    largest: tuple[LargestUse, ...]
    """The largest allocations at the peak."""
    curve: tuple[CurveColumn, ...]
    """Memory over the rehearsal, in intervals with equal numbers of allocations and frees."""
    timeline: PredictedTimeline | None
    """The fullest step in detail; `null` if no step was rehearsed on a GPU."""
    host: PredictedHost | None
    """Host memory; `null` if it could not be measured."""
    caveats: tuple[PredictionCaveat, ...]
    """Caveats, most important first."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            command=tuple(data["command"]),
            torch_version=data["torch_version"],
            steps=data["steps"],
            world_size=data["world_size"],
            seconds=data["seconds"],
            isolation=data["isolation"],
            gpu_hidden=data["gpu_hidden"],
            containment=None if data["containment"] is None else Containment._from_json(data["containment"]),
            suppressed=tuple(data["suppressed"]),
            connections=tuple(HostConnection._from_json(item) for item in data["connections"]),
            sockets=tuple(SocketConnection._from_json(item) for item in data["sockets"]),
            peak=None if data["peak"] is None else PredictedPeak._from_json(data["peak"]),
            terms=tuple(BudgetTerm._from_json(item) for item in data["terms"]),
            phases=tuple(PhaseUse._from_json(item) for item in data["phases"]),
            gpus=tuple(GpuFit._from_json(item) for item in data["gpus"]),
            gpus_from=data["gpus_from"],
            machine_gpus=tuple(MachineGpu._from_json(item) for item in data["machine_gpus"]),
            failed=tuple(FailedGpu._from_json(item) for item in data["failed"]),
            largest=tuple(LargestUse._from_json(item) for item in data["largest"]),
            curve=tuple(CurveColumn._from_json(item) for item in data["curve"]),
            timeline=None if data["timeline"] is None else PredictedTimeline._from_json(data["timeline"]),
            host=None if data["host"] is None else PredictedHost._from_json(data["host"]),
            caveats=tuple(PredictionCaveat._from_json(item) for item in data["caveats"]),
        )


@dataclass(frozen=True, slots=True)
class ComparedGpu:
    """One GPU or machine."""

    name: str
    """The name in the request."""
    gpu: str
    """The GPU."""
    machine: str | None
    """The machine's profile; `null` for a GPU alone."""
    fits: bool
    """Whether it fits, by the safe values of GPU memory and, for a machine, host memory."""
    verdict: str
    """`fits`, `tight`, `does_not_fit`, `host_does_not_fit` or `failed`."""
    headroom_bytes: int | None
    """GPU memory left, by the safe value; negative if it does not fit. `null` if the script failed there."""
    device_bytes: LikelyAndSafe | None
    """Peak GPU memory of the process; `null` if the script failed there."""
    measured_context: ContextMeasurement | None
    """The CUDA context in `device_bytes`, if earlier runs measured it; `null` if it is calculated."""
    host_limit_bytes: int | None
    """Host memory of the machine; `null` if it is not known."""
    settings: dict[str, bool | int | float | str] | None
    """The settings that were planned for it; `null` if the command runs as it is."""
    samples_per_second: LowLikelyHigh | None
    """Samples per second over all GPUs; `null` if the batch size or the speed is not known."""
    speed: PredictedSpeed | None
    """How fast the command is as it is; `null` if it could not be predicted, or if settings were planned."""
    hours: LowLikelyHigh | None
    """Hours for the job; `null` if its length or the speed is not known."""
    price_per_hour: float | None
    """The price of one hour, as given."""
    cost: LowLikelyHigh | None
    """The price of the job; `null` without a price or a time."""
    reason: str | None
    """Why the script failed there; `null` if it did not."""

    @classmethod
    def _from_json(cls, data: Any) -> ComparedGpu:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            gpu=data["gpu"],
            machine=data["machine"],
            fits=data["fits"],
            verdict=data["verdict"],
            headroom_bytes=data["headroom_bytes"],
            device_bytes=None if data["device_bytes"] is None else LikelyAndSafe._from_json(data["device_bytes"]),
            measured_context=None if data["measured_context"] is None else ContextMeasurement._from_json(data["measured_context"]),
            host_limit_bytes=data["host_limit_bytes"],
            settings=data["settings"],
            samples_per_second=None if data["samples_per_second"] is None else LowLikelyHigh._from_json(data["samples_per_second"]),
            speed=None if data["speed"] is None else PredictedSpeed._from_json(data["speed"]),
            hours=None if data["hours"] is None else LowLikelyHigh._from_json(data["hours"]),
            price_per_hour=data["price_per_hour"],
            cost=None if data["cost"] is None else LowLikelyHigh._from_json(data["cost"]),
            reason=data["reason"],
        )


@dataclass(frozen=True, slots=True)
class JobLength:
    """How long a job is."""

    epochs: float | None
    """Passes over the training data; `null` if the length is given in steps, or unknown."""
    steps: float | None
    """Optimizer steps; `null` if they are not known."""
    missing: str | None
    """What has to be known for a time in hours, if it is not."""

    @classmethod
    def _from_json(cls, data: Any) -> JobLength:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            epochs=data["epochs"],
            steps=data["steps"],
            missing=data["missing"],
        )


@dataclass(frozen=True, slots=True)
class CompareDocument:
    """The same training command on several GPUs and machines: whether it fits, how long it takes, what it costs."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    command: tuple[str, ...]
    """The rehearsed command."""
    torch_version: str
    """The PyTorch version of the rehearsal."""
    length: JobLength
    """How long the job is."""
    candidates: tuple[ComparedGpu, ...]
    """In the requested order."""
    gpus_from: str
    """Where the GPU models come from: `requested`, `machine` (this machine's, if none were named) or `usual` (this machine has none that is known)."""
    machine_gpus: tuple[MachineGpu, ...]
    """This machine's GPUs with what is free on each now, if `gpus_from` is `machine`; otherwise empty."""
    fastest: str | None
    """The candidate with the shortest time among those that fit; `null` if no time is known."""
    cheapest: str | None
    """The candidate with the lowest cost among those that fit; `null` if no cost is known."""
    host_bytes: LikelyAndSafe | None
    """Predicted host memory; `null` if it could not be measured."""

    @classmethod
    def _from_json(cls, data: Any) -> CompareDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            command=tuple(data["command"]),
            torch_version=data["torch_version"],
            length=JobLength._from_json(data["length"]),
            candidates=tuple(ComparedGpu._from_json(item) for item in data["candidates"]),
            gpus_from=data["gpus_from"],
            machine_gpus=tuple(MachineGpu._from_json(item) for item in data["machine_gpus"]),
            fastest=data["fastest"],
            cheapest=data["cheapest"],
            host_bytes=None if data["host_bytes"] is None else LikelyAndSafe._from_json(data["host_bytes"]),
        )


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """A variable to set."""

    name: str
    """Its name."""
    value: str
    """Its value."""

    @classmethod
    def _from_json(cls, data: Any) -> EnvironmentVariable:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            value=data["value"],
        )


@dataclass(frozen=True, slots=True)
class KnobChange:
    """A knob that differs."""

    knob: str
    """The knob."""
    before: str
    """Its value on the rung above."""
    after: str
    """Its value on this one."""

    @classmethod
    def _from_json(cls, data: Any) -> KnobChange:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            knob=data["knob"],
            before=data["before"],
            after=data["after"],
        )


@dataclass(frozen=True, slots=True)
class PlanReason:
    """One reason."""

    kind: str
    """Such as `refused`, `sacrificed`, `chosen` or `estimated`."""
    text: str
    """The sentence."""
    brim: str | None
    """The limit that is exceeded, if any."""
    missing_bytes: int | None
    """By how many bytes it is exceeded."""

    @classmethod
    def _from_json(cls, data: Any) -> PlanReason:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            kind=data["kind"],
            text=data["text"],
            brim=data["brim"],
            missing_bytes=data["missing_bytes"],
        )


@dataclass(frozen=True, slots=True)
class PlanRehearsal:
    """A rehearsal that the plan is based on."""

    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    reused: bool
    """Whether it came from the cache."""
    age_seconds: float
    """How long ago it was made."""
    seconds: float
    """How long it took when it was made."""
    failed: str | None
    """The last line of output, if the script failed before its first steps."""

    @classmethod
    def _from_json(cls, data: Any) -> PlanRehearsal:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            settings=data["settings"],
            reused=data["reused"],
            age_seconds=data["age_seconds"],
            seconds=data["seconds"],
            failed=data["failed"],
        )


@dataclass(frozen=True, slots=True)
class PlannedBrim:
    """A limit, and how much of it the settings need."""

    name: str
    """`host`, `shm` or `gpu`, with an index if there are several."""
    limit_bytes: int
    """Bytes available to the job."""
    likely_bytes: int
    """The most likely use."""
    safe_bytes: int
    """The safe value: 95 % of runs stay below it."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedBrim:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            limit_bytes=data["limit_bytes"],
            likely_bytes=data["likely_bytes"],
            safe_bytes=data["safe_bytes"],
        )


@dataclass(frozen=True, slots=True)
class PlannedBytes:
    """A likely and a safe number of bytes."""

    likely_bytes: int
    """The most likely value."""
    safe_bytes: int
    """The safe value: 95 % of runs stay below it."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedBytes:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            likely_bytes=data["likely_bytes"],
            safe_bytes=data["safe_bytes"],
        )


@dataclass(frozen=True, slots=True)
class PlannedCandidate:
    """Settings that were compared with the planned ones."""

    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    brims: tuple[PlannedBrim, ...]
    """Every limit, and how much of it they need."""
    throughput: PlannedThroughput | None
    """Expected throughput; `null` if unknown."""
    fits: bool
    """Whether they fit."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedCandidate:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            settings=data["settings"],
            brims=tuple(PlannedBrim._from_json(item) for item in data["brims"]),
            throughput=None if data["throughput"] is None else PlannedThroughput._from_json(data["throughput"]),
            fits=data["fits"],
        )


@dataclass(frozen=True, slots=True)
class PlannedConfig:
    """The values to write into the copy of a config file."""

    file: str
    """The file as the command names it."""
    values: dict[str, bool | int | float | str]
    """Keys, with dots, and their values."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedConfig:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            file=data["file"],
            values=data["values"],
        )


@dataclass(frozen=True, slots=True)
class PlannedFootprint:
    """The host and GPU memory that settings need."""

    host: PlannedBytes
    """Anonymous and shared memory of all processes together."""
    shm: PlannedBytes
    """The part of it in /dev/shm."""
    gpu: PlannedBytes | None
    """The GPU with the highest use; `null` for a job on the CPU."""
    host_terms: tuple[PlannedTerm, ...]
    """Use of host memory at its peak."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedFootprint:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            host=PlannedBytes._from_json(data["host"]),
            shm=PlannedBytes._from_json(data["shm"]),
            gpu=None if data["gpu"] is None else PlannedBytes._from_json(data["gpu"]),
            host_terms=tuple(PlannedTerm._from_json(item) for item in data["host_terms"]),
        )


@dataclass(frozen=True, slots=True)
class PlannedRung:
    """One rung."""

    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    changed: tuple[KnobChange, ...]
    """What differs from the rung above."""
    brims: tuple[PlannedBrim, ...]
    """Every limit, and how much of it the rung needs."""
    throughput: PlannedThroughput | None
    """Expected throughput; `null` if unknown."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedRung:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            settings=data["settings"],
            changed=tuple(KnobChange._from_json(item) for item in data["changed"]),
            brims=tuple(PlannedBrim._from_json(item) for item in data["brims"]),
            throughput=None if data["throughput"] is None else PlannedThroughput._from_json(data["throughput"]),
        )


@dataclass(frozen=True, slots=True)
class PlannedTerm:
    """One use of host memory."""

    name: str
    """Such as `program`, `dataset`, `worker_copies` or `batches`."""
    likely_bytes: int
    """The most likely value."""
    safe_bytes: int
    """The safe value: 95 % of runs stay below it."""
    reason: str | None
    """An explanation, if there is one."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedTerm:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            likely_bytes=data["likely_bytes"],
            safe_bytes=data["safe_bytes"],
            reason=data["reason"],
        )


@dataclass(frozen=True, slots=True)
class PlannedThroughput:
    """Expected throughput."""

    samples_per_second: float
    """Samples per second."""
    source: str
    """`measured` in an earlier run with these settings, `calculated` from the operators of a rehearsed step, or `estimated`: a ranking of settings, not a value."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedThroughput:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            samples_per_second=data["samples_per_second"],
            source=data["source"],
        )


@dataclass(frozen=True, slots=True)
class WantedSettings:
    """The preferred settings: the first value of each knob."""

    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    brims: tuple[PlannedBrim, ...]
    """Every limit, and how much of it they would need. Empty if unknown."""
    throughput: PlannedThroughput | None
    """Expected throughput; `null` if unknown."""
    result_changes: tuple[str, ...]
    """Knobs whose planned value changes the training result."""

    @classmethod
    def _from_json(cls, data: Any) -> WantedSettings:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            settings=data["settings"],
            brims=tuple(PlannedBrim._from_json(item) for item in data["brims"]),
            throughput=None if data["throughput"] is None else PlannedThroughput._from_json(data["throughput"]),
            result_changes=tuple(data["result_changes"]),
        )


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """The fastest settings that fit, the reasons, and the lower rungs."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    job: str
    """The job file."""
    mode: str | None
    """The mode, if one was selected."""
    machine: str
    """The machine it is for."""
    fits: bool
    """Whether any settings fit. If none do, `settings` are the closest ones."""
    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    effective_batch: int | None
    """Samples per optimizer step, over all ranks and accumulated micro-batches."""
    command: tuple[str, ...]
    """The job's command line with these settings."""
    environment: tuple[EnvironmentVariable, ...]
    """Variables to set for it."""
    config: tuple[PlannedConfig, ...]
    """Values to write into copies of the config files that the command names."""
    footprint: PlannedFootprint
    """What the settings need."""
    brims: tuple[PlannedBrim, ...]
    """Every limit, and how much of it the settings need."""
    throughput: PlannedThroughput | None
    """Expected throughput; `null` if unknown."""
    reasons: tuple[PlanReason, ...]
    """Why these settings and not better ones."""
    rungs: tuple[PlannedRung, ...]
    """The settings to try next, best first."""
    wanted: WantedSettings
    """The preferred settings, and what they would need."""
    candidates: tuple[PlannedCandidate, ...]
    """The settings around the planned ones, at most 200, also those that do not fit."""
    measured_context: ContextMeasurement | None
    """The CUDA context in the memory of the GPU, if earlier runs measured it; `null` if it is calculated."""
    rehearsals: tuple[PlanRehearsal, ...]
    """The rehearsals that the plan is based on."""
    isolation: str | None
    """How your files were protected from the script: `overlay`, `redirect`, or `off` if writes were allowed. `null` if all rehearsals came from the cache."""
    gpu_hidden: str | None
    """How the GPUs of this machine were hidden from the script: `devices` (they were absent from its `/dev`), `landlock` (it was denied to open them), or `no_driver` if there is nothing to hide. `null` if all rehearsals came from the cache."""
    containment: Containment | None
    """How each kind of thing that the script could have reached was kept from it. `null` if all rehearsals came from the cache."""
    suppressed: tuple[str, ...]
    """Requests of the script to experiment trackers and hubs that were not sent in the rehearsals made now."""
    connections: tuple[HostConnection, ...]
    """Other hosts, and services on this machine, that the script connected to in the rehearsals made now."""
    sockets: tuple[SocketConnection, ...]
    """Local sockets that the script connected to, or could not, in the rehearsals made now."""
    seconds: float
    """How long planning took."""

    @classmethod
    def _from_json(cls, data: Any) -> PlanDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            job=data["job"],
            mode=data["mode"],
            machine=data["machine"],
            fits=data["fits"],
            settings=data["settings"],
            effective_batch=data["effective_batch"],
            command=tuple(data["command"]),
            environment=tuple(EnvironmentVariable._from_json(item) for item in data["environment"]),
            config=tuple(PlannedConfig._from_json(item) for item in data["config"]),
            footprint=PlannedFootprint._from_json(data["footprint"]),
            brims=tuple(PlannedBrim._from_json(item) for item in data["brims"]),
            throughput=None if data["throughput"] is None else PlannedThroughput._from_json(data["throughput"]),
            reasons=tuple(PlanReason._from_json(item) for item in data["reasons"]),
            rungs=tuple(PlannedRung._from_json(item) for item in data["rungs"]),
            wanted=WantedSettings._from_json(data["wanted"]),
            candidates=tuple(PlannedCandidate._from_json(item) for item in data["candidates"]),
            measured_context=None if data["measured_context"] is None else ContextMeasurement._from_json(data["measured_context"]),
            rehearsals=tuple(PlanRehearsal._from_json(item) for item in data["rehearsals"]),
            isolation=data["isolation"],
            gpu_hidden=data["gpu_hidden"],
            containment=None if data["containment"] is None else Containment._from_json(data["containment"]),
            suppressed=tuple(data["suppressed"]),
            connections=tuple(HostConnection._from_json(item) for item in data["connections"]),
            sockets=tuple(SocketConnection._from_json(item) for item in data["sockets"]),
            seconds=data["seconds"],
        )


@dataclass(frozen=True, slots=True)
class LayoutBlock:
    """One block, or several small neighbors."""

    bytes: int
    """Its size."""
    used_bytes: int
    """Bytes in use: all or none of a single block."""

    @classmethod
    def _from_json(cls, data: Any) -> LayoutBlock:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            bytes=data["bytes"],
            used_bytes=data["used_bytes"],
        )


@dataclass(frozen=True, slots=True)
class LayoutSegment:
    """One segment."""

    blocks: tuple[LayoutBlock, ...]
    """Blocks in the order of their addresses, at most 256; neighbors are merged if there are more."""

    @classmethod
    def _from_json(cls, data: Any) -> LayoutSegment:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            blocks=tuple(LayoutBlock._from_json(item) for item in data["blocks"]),
        )


@dataclass(frozen=True, slots=True)
class LineMemory:
    """Memory that one line of code allocated and that is still in use."""

    file: str | None
    """The file; `null` if the allocation was made before the history was recorded or without Python code."""
    line: int | None
    """The line number; `null` if unknown."""
    function: str | None
    """The function; `null` if unknown."""
    bytes: int
    """Bytes in use."""
    allocations: int
    """Number of allocations."""

    @classmethod
    def _from_json(cls, data: Any) -> LineMemory:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            file=data["file"],
            line=data["line"],
            function=data["function"],
            bytes=data["bytes"],
            allocations=data["allocations"],
        )


@dataclass(frozen=True, slots=True)
class MemoryByLine:
    """Memory in use at one moment of a snapshot, by the line of code that allocated it."""

    at_failure: bool
    """Whether the moment is the last failed allocation; otherwise it is the peak of allocated memory."""
    total_bytes: int
    """Bytes in use at that moment."""
    lines: tuple[LineMemory, ...]
    """The lines that hold the most, at most 40."""
    other_bytes: int
    """Bytes of the lines that are not listed."""

    @classmethod
    def _from_json(cls, data: Any) -> MemoryByLine:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            at_failure=data["at_failure"],
            total_bytes=data["total_bytes"],
            lines=tuple(LineMemory._from_json(item) for item in data["lines"]),
            other_bytes=data["other_bytes"],
        )


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Where memory is in use within the segments that PyTorch reserved."""

    segments: tuple[LayoutSegment, ...]
    """The largest segments, at most 64."""
    other_segments: int
    """Number of smaller segments that are not listed."""
    other_bytes: int
    """Bytes of those segments."""
    reserved_bytes: int
    """Reserved bytes in all segments."""
    used_bytes: int
    """Bytes in use in all segments."""
    largest_free_bytes: int
    """The largest unused block of all segments."""

    @classmethod
    def _from_json(cls, data: Any) -> MemoryLayout:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            segments=tuple(LayoutSegment._from_json(item) for item in data["segments"]),
            other_segments=data["other_segments"],
            other_bytes=data["other_bytes"],
            reserved_bytes=data["reserved_bytes"],
            used_bytes=data["used_bytes"],
            largest_free_bytes=data["largest_free_bytes"],
        )


@dataclass(frozen=True, slots=True)
class ReplayAgreement:
    """How many allocations the model places at their recorded address, given only the addresses of new segments."""

    allocations: int
    """Number of recorded allocations."""
    same_address: int
    """Number of allocations that the model places at the same address."""

    @classmethod
    def _from_json(cls, data: Any) -> ReplayAgreement:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            allocations=data["allocations"],
            same_address=data["same_address"],
        )


@dataclass(frozen=True, slots=True)
class ReplayColumn:
    """Memory over a replay, in columns of equal numbers of events."""

    allocated_bytes: int
    """Allocated bytes at the fullest moment of the column."""
    reserved_bytes: int
    """Reserved bytes at that moment."""

    @classmethod
    def _from_json(cls, data: Any) -> ReplayColumn:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            allocated_bytes=data["allocated_bytes"],
            reserved_bytes=data["reserved_bytes"],
        )


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One replay."""

    gpu: str | None
    """The GPU model, if one was named."""
    alloc_conf: str
    """The allocator settings, as in `PYTORCH_CUDA_ALLOC_CONF`; empty for the default."""
    capacity_bytes: int
    """GPU memory available to PyTorch, in bytes."""
    peak_allocated_bytes: int
    """Peak of allocated bytes, until the end or until memory ran out."""
    peak_reserved_bytes: int
    """Peak of reserved bytes."""
    oom: bool
    """Whether it ran out of memory."""
    oom_request_bytes: int | None
    """The size of the failed allocation."""
    retries: int
    """Number of times cached memory was freed before a retry."""
    layout: MemoryLayout | None
    """Segments and their blocks when the allocation failed, or at the peak of reserved bytes. `null` unless a report was requested."""

    @classmethod
    def _from_json(cls, data: Any) -> ReplayResult:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            gpu=data["gpu"],
            alloc_conf=data["alloc_conf"],
            capacity_bytes=data["capacity_bytes"],
            peak_allocated_bytes=data["peak_allocated_bytes"],
            peak_reserved_bytes=data["peak_reserved_bytes"],
            oom=data["oom"],
            oom_request_bytes=data["oom_request_bytes"],
            retries=data["retries"],
            layout=None if data["layout"] is None else MemoryLayout._from_json(data["layout"]),
        )


@dataclass(frozen=True, slots=True)
class ReplayDocument:
    """Results of a replay for each capacity and setting."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    file: str
    """The file that was replayed."""
    torch_version: str
    """The modeled PyTorch version."""
    torch_version_assumed: bool
    """Whether that is an assumption: the file names no version and none was given."""
    device: int
    """The replayed device."""
    events: int
    """Number of allocations and frees in the file."""
    agreement: ReplayAgreement | None
    """How closely the model matches the recorded addresses; `null` if the file has none."""
    timeline: tuple[ReplayColumn, ...]
    """Memory over the file with the first result's settings, in at most 480 columns. Empty unless a report was requested."""
    by_line: MemoryByLine | None
    """Memory in use by line of code; `null` for traces and for snapshots without stack frames."""
    results: tuple[ReplayResult, ...]
    """One result per capacity and setting, in the requested order."""

    @classmethod
    def _from_json(cls, data: Any) -> ReplayDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            file=data["file"],
            torch_version=data["torch_version"],
            torch_version_assumed=data["torch_version_assumed"],
            device=data["device"],
            events=data["events"],
            agreement=None if data["agreement"] is None else ReplayAgreement._from_json(data["agreement"]),
            timeline=tuple(ReplayColumn._from_json(item) for item in data["timeline"]),
            by_line=None if data["by_line"] is None else MemoryByLine._from_json(data["by_line"]),
            results=tuple(ReplayResult._from_json(item) for item in data["results"]),
        )


@dataclass(frozen=True, slots=True)
class ExplainedAttempt:
    """One attempt of a run that was restarted."""

    number: int
    """The number of the attempt, from 1."""
    changed: tuple[str, ...]
    """What differs from the attempt before, such as `workers 4 to 2`."""
    resumed_from: str | None
    """The checkpoint it resumed from."""
    cause: str | None
    """The cause of its end, if it has ended."""
    confidence: str | None
    """`proved`, `likely` or `cannot_tell`."""
    summary: str | None
    """One sentence."""
    n_false_alarms: int
    """Number of alarms after which memory did not run out."""

    @classmethod
    def _from_json(cls, data: Any) -> ExplainedAttempt:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            number=data["number"],
            changed=tuple(data["changed"]),
            resumed_from=data["resumed_from"],
            cause=data["cause"],
            confidence=data["confidence"],
            summary=data["summary"],
            n_false_alarms=data["n_false_alarms"],
        )


@dataclass(frozen=True, slots=True)
class ExplainedProof:
    """One line of evidence."""

    source: str
    """Where it comes from: `kernel`, `kernel_log`, `wait_status`, `samples`, `hook`, `snapshot` or `output`."""
    text: str
    """What it shows, with the measured values."""

    @classmethod
    def _from_json(cls, data: Any) -> ExplainedProof:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            source=data["source"],
            text=data["text"],
        )


@dataclass(frozen=True, slots=True)
class ExplainedRemedy:
    """A way to avoid the failure."""

    text: str
    """What to do."""
    effect: str | None
    """The effect it would have had on this run, if that can be computed."""
    used_bytes: int | None
    """Memory that would then be in use, if that can be computed."""
    limit_bytes: int | None
    """The limit that `used_bytes` counts against."""

    @classmethod
    def _from_json(cls, data: Any) -> ExplainedRemedy:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            text=data["text"],
            effect=data["effect"],
            used_bytes=data["used_bytes"],
            limit_bytes=data["limit_bytes"],
        )


@dataclass(frozen=True, slots=True)
class ExplainedVerdict:
    """Why an attempt ended."""

    cause: str
    """One of the closed list of causes, such as `host_oom_kill`."""
    confidence: str
    """`proved`, `likely` or `cannot_tell`."""
    detail: str
    """A closer description of the cause."""
    summary: str
    """One sentence."""
    evidence: tuple[ExplainedProof, ...]
    """Evidence, strongest first."""
    remedies: tuple[ExplainedRemedy, ...]
    """What to do, cheapest first."""
    would_settle: tuple[str, ...]
    """What would confirm the cause, if it is not proved."""

    @classmethod
    def _from_json(cls, data: Any) -> ExplainedVerdict:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            cause=data["cause"],
            confidence=data["confidence"],
            detail=data["detail"],
            summary=data["summary"],
            evidence=tuple(ExplainedProof._from_json(item) for item in data["evidence"]),
            remedies=tuple(ExplainedRemedy._from_json(item) for item in data["remedies"]),
            would_settle=tuple(data["would_settle"]),
        )


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Summary of a run."""

    id: str
    """The ID of the run."""
    started_at_unix_ms: int
    """Milliseconds since 1970."""
    command: tuple[str, ...]
    """The command."""
    folder: str
    """The working directory."""
    state: str
    """`running`, `finished`, `failed`, `killed`, `stopped_by_us`, `stopped_by_user`, `not_started`, `ended` if its exit status is unknown, or `cut_off` if brimful itself ended before the run."""
    exit_code: int | None
    """The exit code, if it exited."""
    signal: int | None
    """The signal, if one killed it."""
    n_attempts: int
    """Number of attempts: more than one if it was restarted."""
    duration_ms: int
    """Total duration of all attempts, as far as it was observed."""
    peak_host_used_bytes: int | None
    """Peak host memory of all attempts."""
    host_limit_bytes: int | None
    """The nearest limit that kills."""
    cause: str | None
    """The cause in the verdict of the last attempt, if there is one."""
    summary: str | None
    """The summary of the verdict."""
    host_used_sparkline: tuple[int | None, ...]
    """Peak host memory in each of 60 equal parts of the run, in bytes; `null` where nothing was sampled. Empty if nothing was sampled at all."""

    @classmethod
    def _from_json(cls, data: Any) -> RunSummary:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            id=data["id"],
            started_at_unix_ms=data["started_at_unix_ms"],
            command=tuple(data["command"]),
            folder=data["folder"],
            state=data["state"],
            exit_code=data["exit_code"],
            signal=data["signal"],
            n_attempts=data["n_attempts"],
            duration_ms=data["duration_ms"],
            peak_host_used_bytes=data["peak_host_used_bytes"],
            host_limit_bytes=data["host_limit_bytes"],
            cause=data["cause"],
            summary=data["summary"],
            host_used_sparkline=tuple(item for item in data["host_used_sparkline"]),
        )


@dataclass(frozen=True, slots=True)
class ExplainDocument:
    """Why a run died."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    source: str
    """What was explained: the ID of a run, the name of a file, or `-` for standard input."""
    run: RunSummary | None
    """The run, if it was one."""
    attempts: tuple[ExplainedAttempt, ...]
    """What happened in each attempt, if the run was restarted; empty otherwise."""
    verdict: ExplainedVerdict
    """Why the last attempt ended."""

    @classmethod
    def _from_json(cls, data: Any) -> ExplainDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            source=data["source"],
            run=None if data["run"] is None else RunSummary._from_json(data["run"]),
            attempts=tuple(ExplainedAttempt._from_json(item) for item in data["attempts"]),
            verdict=ExplainedVerdict._from_json(data["verdict"]),
        )


@dataclass(frozen=True, slots=True)
class RunsDocument:
    """All recorded runs, newest first."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    state_dir: str
    """The state directory."""
    runs: tuple[RunSummary, ...]
    """Newest first."""

    @classmethod
    def _from_json(cls, data: Any) -> RunsDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            state_dir=data["state_dir"],
            runs=tuple(RunSummary._from_json(item) for item in data["runs"]),
        )


@dataclass(frozen=True, slots=True)
class FleetCause:
    """Attempts that ended for one cause."""

    cause: str
    """One of the closed list of causes, such as `host_oom_kill`."""
    is_memory: bool
    """Whether the cause is memory."""
    n_attempts: int
    """Number of attempts."""
    wasted_gpu_hours: float
    """GPU hours they lost."""

    @classmethod
    def _from_json(cls, data: Any) -> FleetCause:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            cause=data["cause"],
            is_memory=data["is_memory"],
            n_attempts=data["n_attempts"],
            wasted_gpu_hours=data["wasted_gpu_hours"],
        )


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job that ran out of memory."""

    job: str
    """A digest of the directory and the command."""
    script: str | None
    """The file name of its script."""
    n_runs: int
    """Number of its runs."""
    n_out_of_memory: int
    """Attempts that ran out of memory."""
    n_finished: int
    """Runs that finished."""
    wasted_gpu_hours: float
    """GPU hours lost to its failures."""
    last_cause: str | None
    """The cause of the last attempt that ran out of memory."""
    last_unix_ms: int
    """Start of its last attempt, in milliseconds since 1970."""

    @classmethod
    def _from_json(cls, data: Any) -> FleetJob:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            job=data["job"],
            script=data["script"],
            n_runs=data["n_runs"],
            n_out_of_memory=data["n_out_of_memory"],
            n_finished=data["n_finished"],
            wasted_gpu_hours=data["wasted_gpu_hours"],
            last_cause=data["last_cause"],
            last_unix_ms=data["last_unix_ms"],
        )


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Predicted against measured memory."""

    n_attempts: int
    """Attempts with a prediction and a measurement."""
    median_error: float | None
    """The median of predicted over measured peak, minus one: below zero, predictions are too low."""
    p90_absolute_error: float | None
    """90 % of the errors are smaller than this, regardless of their sign."""
    n_above_safe: int
    """Attempts that used more than the predicted safe value."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictionError:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            n_attempts=data["n_attempts"],
            median_error=data["median_error"],
            p90_absolute_error=data["p90_absolute_error"],
            n_above_safe=data["n_above_safe"],
        )


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was not counted."""

    path: str
    """The path or URL."""
    reason: str
    """What is wrong with it."""

    @classmethod
    def _from_json(cls, data: Any) -> SkippedFile:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            path=data["path"],
            reason=data["reason"],
        )


@dataclass(frozen=True, slots=True)
class UnusedMemory:
    """Memory that finished attempts did not use."""

    n_attempts: int
    """Attempts of which limit and peak are known."""
    unused_share: float | None
    """The share of all limits above the peaks, weighted by bytes and time."""
    unused_byte_hours: float
    """The same as bytes times hours."""
    median_unused_share: float | None
    """The median of the unused shares of the attempts."""

    @classmethod
    def _from_json(cls, data: Any) -> UnusedMemory:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            n_attempts=data["n_attempts"],
            unused_share=data["unused_share"],
            unused_byte_hours=data["unused_byte_hours"],
            median_unused_share=data["median_unused_share"],
        )


@dataclass(frozen=True, slots=True)
class FleetDocument:
    """What the recorded runs of a directory or an object store have in common."""

    schema_version: int
    """The schema version of this document."""
    brimful_version: str
    """The version of brimful that wrote it."""
    at: str
    """The directory or URL of the records."""
    n_files: int
    """Number of files; one run writes one file."""
    n_skipped_files: int
    """Files that are incomplete, or no records of brimful. They are not counted in anything else."""
    first_skipped_file: SkippedFile | None
    """The first of them, and what is wrong with it."""
    n_files_left_out: int
    """Files that were not read because there are too many."""
    n_newer_rows: int
    """Rows of a newer version of brimful, which are not counted."""
    n_runs: int
    """Number of runs. A run on several nodes counts once for each node."""
    n_attempts: int
    """Number of attempts of all runs."""
    first_unix_ms: int | None
    """Start of the first attempt, in milliseconds since 1970."""
    last_unix_ms: int | None
    """Start of the last attempt, in milliseconds since 1970."""
    n_died_of_memory: int
    """Runs whose last attempt ran out of memory."""
    n_came_back: int
    """Runs that ran out of memory, were restarted, and finished."""
    gpu_hours: float
    """GPU hours of all attempts."""
    wasted_gpu_hours: float
    """GPU hours lost to failures of any cause: from the last checkpoint, or else from the start, to the end."""
    hours: float
    """Hours of all attempts."""
    wasted_hours: float
    """Hours lost to failures of any cause."""
    causes: tuple[FleetCause, ...]
    """Causes of attempts that did not finish, most frequent first."""
    host: UnusedMemory
    """Host memory that finished attempts did not use."""
    gpu: UnusedMemory
    """GPU memory that finished attempts did not use."""
    host_prediction: PredictionError
    """Predicted and measured host memory of finished attempts."""
    gpu_prediction: PredictionError
    """Predicted and measured GPU memory of finished attempts."""
    jobs: tuple[FleetJob, ...]
    """Jobs that ran out of memory, most frequent first; at most 20."""
    n_jobs_left_out: int
    """Jobs that ran out of memory and are not listed."""

    @classmethod
    def _from_json(cls, data: Any) -> FleetDocument:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            schema_version=data["schema_version"],
            brimful_version=data["brimful_version"],
            at=data["at"],
            n_files=data["n_files"],
            n_skipped_files=data["n_skipped_files"],
            first_skipped_file=None if data["first_skipped_file"] is None else SkippedFile._from_json(data["first_skipped_file"]),
            n_files_left_out=data["n_files_left_out"],
            n_newer_rows=data["n_newer_rows"],
            n_runs=data["n_runs"],
            n_attempts=data["n_attempts"],
            first_unix_ms=data["first_unix_ms"],
            last_unix_ms=data["last_unix_ms"],
            n_died_of_memory=data["n_died_of_memory"],
            n_came_back=data["n_came_back"],
            gpu_hours=data["gpu_hours"],
            wasted_gpu_hours=data["wasted_gpu_hours"],
            hours=data["hours"],
            wasted_hours=data["wasted_hours"],
            causes=tuple(FleetCause._from_json(item) for item in data["causes"]),
            host=UnusedMemory._from_json(data["host"]),
            gpu=UnusedMemory._from_json(data["gpu"]),
            host_prediction=PredictionError._from_json(data["host_prediction"]),
            gpu_prediction=PredictionError._from_json(data["gpu_prediction"]),
            jobs=tuple(FleetJob._from_json(item) for item in data["jobs"]),
            n_jobs_left_out=data["n_jobs_left_out"],
        )
