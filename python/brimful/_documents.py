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
    """Who sets it, in words."""
    kind: str | None
    """Who sets it: `physical_memory`, `cgroup_v1`, `cgroup_v2`, `hidden_cgroup` or `given`."""
    cgroup_path: str | None
    """The control group that sets it, as the kernel names it; `null` where none does."""

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
    """One memory control group."""

    version: int
    """1 or 2."""
    path: str
    """The group's path as the kernel names it."""
    max_bytes: int | Literal["unlimited"] | None
    """The limit that kills (`memory.max`, `memory.limit_in_bytes`)."""
    high_bytes: int | Literal["unlimited"] | None
    """The limit that slows down (`memory.high`)."""
    used_bytes: int | None
    """Everything charged to the group."""
    reclaimable_bytes: int | None
    """The part that the kernel takes back before it kills."""
    unreclaimable_bytes: int | None
    """The part that stays while its owners live."""
    anon_bytes: int | None
    """Private memory of processes."""
    shmem_bytes: int | None
    """Shared memory and tmpfs."""
    swap_left_bytes: int | Literal["unlimited"] | None
    """Swap the group may still use."""
    oom_group: bool | None
    """A kill takes every process of the group."""
    oom_kill_disabled: bool | None
    """The kernel freezes instead of killing (v1)."""

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
    """Processors."""

    usable: float | None
    """How many can run at the same time; a quota may leave a fraction."""
    limited_by: str | None
    """What holds the number down: `machine`, `affinity`, `cpuset` or `quota`."""
    online: int | None
    """What `os.cpu_count()` shows."""
    affinity: int | None
    """Allowed by the affinity mask."""
    cpuset: int | Literal["unlimited"] | None
    """Allowed by the cpuset of the control group."""
    quota: float | Literal["unlimited"] | None
    """Allowed by the quota of the control group."""

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
    """Something that will bite."""

    id: str
    """Its name in the catalogue."""
    severity: str
    """`fatal`, `risk` or `note`."""
    summary: str
    """What will happen."""
    evidence: tuple[str, ...]
    """What that rests on."""
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
    """A fact that could not be learned."""

    path: str
    """Where the `null` stands in this document, such as `host.brim.limit_bytes`."""
    reason: str
    """Why it could not be learned."""

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
    """The driver's unique name for it."""
    compute_capability: str | None
    """NVIDIA's generation number, such as `7.5`."""
    multiprocessors: int | None
    """Streaming multiprocessors or compute units."""
    total_bytes: int | None
    """What the driver's management library says it has."""
    used_bytes: int | None
    """In use by processes."""
    reserved_bytes: int | None
    """Kept by the driver for itself."""
    torch_visible_bytes: int | None
    """What torch reports as the card's total."""
    torch_visible_by: str | None
    """How that is known: `driver`, `measured`, `data sheet` or `estimated`."""
    torch_sees_it: bool | None
    """Whether torch will see it."""
    torch_index: int | None
    """The `n` of `cuda:n`, where torch will see it."""
    processes: tuple[GpuProcess, ...] | None
    """Processes that hold its memory."""
    ecc: bool | None
    """Error correction is on."""
    mig_enabled: bool | None
    """Multi-instance (MIG) mode is on."""
    mig_instances: tuple[MigInstance, ...]
    """The instances in that mode."""

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
    """Its number; in a container that of the host."""
    name: str | None
    """Its name, where it can be seen from here."""
    used_bytes: int | None
    """What it holds."""

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
    """Physical memory, as psutil shows it."""
    available_bytes: int | None
    """What the kernel thinks can be handed out without swapping."""
    swap_total_bytes: int | None
    """Swap of the machine."""
    swap_free_bytes: int | None
    """Swap that is not in use."""
    brim: Brim
    """The nearest limit that kills."""
    headroom_bytes: int | None
    """Bytes that can still be touched before the kernel kills, without swap."""
    swap_headroom_bytes: int | None
    """What could go to swap on top of the headroom."""
    limits: tuple[Limit, ...]
    """Every limit, the process's own group first, physical memory last."""
    cgroups: tuple[Cgroup, ...] | None
    """The memory control groups, the process's own first."""
    hidden_groups: str | None
    """What stands above the visible groups: `none`, `own_group` (not even the process's own group can be seen), `unknown`, `none_lower` (there are some, without a lower limit) or `limit` (one with a lower limit). With `own_group`, `unknown` and `limit` the headroom is an upper bound."""
    overcommit: Overcommit | None
    """How the kernel promises memory."""
    pressure: Pressure | None
    """How long tasks waited for memory."""
    oom_score_adj: int | None
    """How early the kernel picks this process: -1000 never, 1000 first."""
    killers: tuple[Killer, ...] | None
    """Programs that kill before the kernel does."""

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
    """What a rehearsal is expected to use: `overlay`, `redirect`, or `none` where it is expected to refuse. Nothing is tried by a probe; the rehearsal itself proves its isolation and reports the one it used."""
    reason: str | None
    """Why, in words."""
    cap_sys_admin: bool | None
    """Whether this process may mount without a user namespace (`CAP_SYS_ADMIN`)."""
    user_namespaces: bool | None
    """Whether the kernel has user namespaces."""
    max_user_namespaces: int | None
    """`user.max_user_namespaces`."""
    unprivileged_userns_clone: bool | None
    """`kernel.unprivileged_userns_clone`; true in kernels without this setting."""
    apparmor_restrict_unprivileged_userns: bool | None
    """`kernel.apparmor_restrict_unprivileged_userns`; false in kernels without this setting."""
    apparmor_profile: str | None
    """The AppArmor profile of this process; `null` where AppArmor is not in use."""
    apparmor_enforced: bool | None
    """Whether AppArmor enforces that profile."""
    seccomp_filter: bool | None
    """Whether a seccomp filter is in force."""
    overlay_filesystem: bool | None
    """Whether the kernel has the overlay file system, or a module for it."""
    scratch_directory: str | None
    """The directory in which a rehearsal is expected to store what the script writes."""
    scratch_filesystem: str | None
    """The file system of that directory."""
    landlock_abi: int | None
    """The version of Landlock's interface; 0 where it is not available."""

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
    """A program that kills when memory is short."""

    name: str
    """Its name."""
    pid: int
    """Its process."""
    acts_when: str
    """When it acts unless told otherwise."""
    arguments: tuple[str, ...]
    """How it was started."""

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
    """Who sets it, in words."""
    kind: str
    """Who sets it, as in `brim.kind`."""
    cgroup_path: str | None
    """The control group that sets it; `null` where none does."""
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
    """Its unique name, as `CUDA_VISIBLE_DEVICES` takes it."""
    total_bytes: int | None
    """Its memory."""
    used_bytes: int | None
    """In use."""
    torch_index: int | None
    """The `n` of `cuda:n`, where torch will see it."""

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
    """How the kernel promises memory."""

    mode: str
    """`heuristic`, `always` or `never`."""
    commit_limit_bytes: int | None
    """The most that may be promised in mode `never`."""
    committed_bytes: int | None
    """What is promised now."""

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
    """What Slurm was asked for."""

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
    """What gave it away."""

    @classmethod
    def _from_json(cls, data: Any) -> PlatformLayer:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            evidence=data["evidence"],
        )


@dataclass(frozen=True, slots=True)
class Pressure:
    """Share of time, in percent, in which tasks waited for memory."""

    some_avg10_percent: float
    """Some task waited, last 10 seconds."""
    some_avg60_percent: float
    """Some task waited, last minute."""
    full_avg10_percent: float
    """All tasks waited, last 10 seconds."""
    full_avg60_percent: float
    """All tasks waited, last minute."""

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
    """Limits that the kernel keeps for each process."""

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
    """What is free of it."""
    counts_against_brim: bool | None
    """Whether what is stored there fills the memory limit."""

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
    """What Slurm was asked for."""

    job_id: str
    """The job."""
    memory_request_bytes: int | None
    """Memory requested on this node; `null` where the whole node was asked for."""
    whole_node: bool | None
    """Whether all of the node's memory was asked for (`--mem=0`)."""
    cpus_on_node: int | None
    """Processors given on this node."""

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
    """Where recorded figures come from."""
    replaced: tuple[str, ...]
    """What was put in place of a fact, such as another card."""

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
    """What it can compute on, such as `CUDA 12.8` or `CPU only`."""
    kernels_for: tuple[str, ...] | None
    """Compute capabilities the official build has kernels for, where known."""

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
    """What a machine really allows, and what will bite there."""

    schema_version: int
    """The version of this document's form."""
    brimful_version: str
    """The version of brimful that wrote it."""
    subject: Subject
    """Which machine is described."""
    host: Host
    """Host memory."""
    shm: SharedMemory
    """Shared memory, through which DataLoader workers hand over batches."""
    process_limits: ProcessLimits
    """Limits that the kernel keeps for each process."""
    cpus: Cpus
    """Processors that can really be used."""
    gpus: tuple[Gpu, ...]
    """GPUs, visible to torch or not."""
    gpu_driver_version: str | None
    """The version of the NVIDIA driver."""
    gpu_driver_cuda: str | None
    """The newest CUDA the driver can serve, such as `12.4`."""
    gpu_visible_devices: str | None
    """The variable that hides GPUs from torch, as `NAME=VALUE`; `null` where none is set."""
    platform: Platform
    """Where the process runs."""
    isolation: Isolation | None
    """How rehearsals can be isolated from the user's files."""
    python: Python | None
    """The Python that would run the job."""
    allocator_variables: tuple[AllocatorVariable, ...]
    """Variables that configure torch's allocator, as far as they are set."""
    findings: tuple[Finding, ...]
    """What will bite, worst first."""
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
    """Settings of the allocator under which PyTorch would hold less."""

    alloc_conf: str
    """As in `PYTORCH_ALLOC_CONF`."""
    peak_reserved_bytes: int
    """Bytes that PyTorch holds at most with these settings."""
    fits: bool
    """Whether it fits the GPU then, by the safe value."""

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
    """One line of the budget."""

    name: str
    """`weights`, `gradients`, `optimizer_state`, `activations`, `temporaries`, `workspaces`, `other`, `rounding`, `cached` (held by PyTorch, not in use: fragmentation), `context` or `nccl`."""
    likely_bytes: int
    """Bytes when most is in use; for `cached` what is held above that at the highest."""
    safe_bytes: int
    """The same with the uncertainty that belongs to this term."""
    by_phase: tuple[PhaseBytes, ...]
    """Bytes at the fullest moment of each phase."""

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
class CurveColumn:
    """One part of the memory curve: its highest values."""

    allocated_bytes: int
    """Bytes in use."""
    reserved_bytes: int
    """Bytes that PyTorch holds."""
    step: int
    """Steps that were complete."""

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
    """A card on which the script did not run."""

    name: str
    """The card."""
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
    """Whether the training fits a card."""

    name: str
    """The card."""
    total_bytes: int
    """What PyTorch sees of its memory."""
    fits: bool
    """Whether it fits, by the safe value."""
    verdict: str
    """`fits`, `tight` (the likely value fits, the safe one does not, or the figure is an upper bound) or `does_not_fit`."""
    headroom_bytes: int
    """Bytes left by the safe value; negative: bytes missing."""
    device_bytes: LikelyAndSafe
    """The highest use of the card by the process."""
    peak_reserved_bytes: int
    """Bytes that PyTorch holds at the most."""
    peak_allocated_bytes: int
    """Bytes in use at the most."""
    retries: int
    """Times that PyTorch has to give cached memory back to go on."""
    alloc_conf: str
    """The allocator's settings, as in `PYTORCH_CUDA_ALLOC_CONF`."""
    alternative: AllocatorAlternative | None
    """Settings of the allocator under which PyTorch would hold less; nothing where little is unused."""

    @classmethod
    def _from_json(cls, data: Any) -> GpuFit:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            name=data["name"],
            total_bytes=data["total_bytes"],
            fits=data["fits"],
            verdict=data["verdict"],
            headroom_bytes=data["headroom_bytes"],
            device_bytes=LikelyAndSafe._from_json(data["device_bytes"]),
            peak_reserved_bytes=data["peak_reserved_bytes"],
            peak_allocated_bytes=data["peak_allocated_bytes"],
            retries=data["retries"],
            alloc_conf=data["alloc_conf"],
            alternative=None if data["alternative"] is None else AllocatorAlternative._from_json(data["alternative"]),
        )


@dataclass(frozen=True, slots=True)
class HostBudgetTerm:
    """One line of the host's budget."""

    name: str
    """`program`, `dataset`, `training`, `worker_programs`, `worker_copies`, `making_batches`, `pickle_buffer`, `batches`, `pinned` or `checkpoint`."""
    likely_bytes: int
    """The most likely bytes."""
    safe_bytes: int
    """The same with the uncertainty that belongs to this term."""
    reason: str | None
    """Why it is charged like this, where that needs a word."""

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
    """The host's need with other workers."""

    start_method: str
    """`fork`, `forkserver` or `spawn`."""
    workers: int
    """Worker processes of the DataLoader."""
    bytes: LikelyAndSafe
    """The highest use."""
    shm_bytes: LikelyAndSafe
    """Of these, what lies in `/dev/shm`."""

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
    """A host that the script connected to."""

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
    """What takes much."""

    kind: str
    """`weights`, `gradients`, … as in the budget."""
    made_by: str
    """The tensor, or the module or phase that made it."""
    count: int
    """How many allocations."""
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
    """The fullest moment of a phase."""

    phase: str
    """`setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`."""
    allocated_bytes: int
    """Bytes in use."""
    reserved_bytes: int
    """Bytes that PyTorch holds."""

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
    """Predicted host memory of a training: anonymous and shared memory of all of its processes together."""

    workers: int
    """Worker processes of the DataLoader, as rehearsed."""
    prefetch: int
    """Batches that each worker makes ahead (`prefetch_factor`), as rehearsed."""
    micro_batch: int
    """Samples of a batch, as rehearsed."""
    start_method: str
    """`fork`, `forkserver` or `spawn`, as rehearsed."""
    pin_memory: bool
    """Whether batches are pinned for a card, as rehearsed."""
    persistent_workers: bool
    """Whether workers stay from one epoch to the next, as rehearsed."""
    bytes: LikelyAndSafe
    """The highest use."""
    shm_bytes: LikelyAndSafe
    """Of these, what lies in `/dev/shm`."""
    terms: tuple[HostBudgetTerm, ...]
    """What the memory is for at the fullest moment."""
    by_workers: tuple[HostByWorkers, ...]
    """The same training with other workers and other start methods; all else as rehearsed."""

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
    """The highest use of a card."""

    gpu: str
    """The card."""
    allocated_bytes: int
    """Bytes in tensors and scratch memory, as `torch.cuda.max_memory_allocated` would say."""
    reserved_bytes: int
    """Bytes that PyTorch holds, as `torch.cuda.max_memory_reserved` would say."""
    device_bytes: LikelyAndSafe
    """All of the process on the card, with the CUDA context."""
    phase: str
    """What the training is doing then."""

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
class PredictionCaveat:
    """A reason to trust the figures less."""

    id: str
    """A stable name, such as `value_dependent_shape`."""
    text: str
    """What it means here."""

    @classmethod
    def _from_json(cls, data: Any) -> PredictionCaveat:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            id=data["id"],
            text=data["text"],
        )


@dataclass(frozen=True, slots=True)
class PredictDocument:
    """Predicted memory of a training command, on the GPU and on the host."""

    schema_version: int
    """The version of this document's form."""
    brimful_version: str
    """The version of brimful that wrote it."""
    command: tuple[str, ...]
    """What was rehearsed."""
    torch_version: str
    """The PyTorch it was rehearsed with."""
    steps: int
    """Optimizer steps that were made."""
    world_size: int
    """Processes of the training, each with a GPU of its own."""
    seconds: float
    """How long the rehearsal and the replays took."""
    isolation: str
    """How your files were protected from the script: `overlay`, `redirect`, or `off` where writes were allowed."""
    suppressed: tuple[str, ...]
    """What the script asked of experiment trackers and hubs, and what was not done in the rehearsal."""
    connections: tuple[HostConnection, ...]
    """Hosts beyond this machine that the script connected to."""
    peak: PredictedPeak | None
    """The highest use of the first card of `gpus`, which `terms`, `phases`, `largest` and `curve` speak of too. Nothing for a training on the processors."""
    terms: tuple[BudgetTerm, ...]
    """The budget: what the memory is for when most is in use. Its sum is the likely use of the card."""
    phases: tuple[PhaseUse, ...]
    """The fullest moment of each phase."""
    gpus: tuple[GpuFit, ...]
    """Every card asked for: whether it fits, and what is left."""
    failed: tuple[FailedGpu, ...]
    """Cards on which the script died before its first step, of something else than memory."""
    largest: tuple[LargestUse, ...]
    """What takes most when most is in use."""
    curve: tuple[CurveColumn, ...]
    """The memory over the rehearsal, in equal parts of its allocations and frees."""
    host: PredictedHost | None
    """Host memory; nothing where it could not be measured."""
    caveats: tuple[PredictionCaveat, ...]
    """What makes the figures weaker, heaviest first."""

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
            suppressed=tuple(data["suppressed"]),
            connections=tuple(HostConnection._from_json(item) for item in data["connections"]),
            peak=None if data["peak"] is None else PredictedPeak._from_json(data["peak"]),
            terms=tuple(BudgetTerm._from_json(item) for item in data["terms"]),
            phases=tuple(PhaseUse._from_json(item) for item in data["phases"]),
            gpus=tuple(GpuFit._from_json(item) for item in data["gpus"]),
            failed=tuple(FailedGpu._from_json(item) for item in data["failed"]),
            largest=tuple(LargestUse._from_json(item) for item in data["largest"]),
            curve=tuple(CurveColumn._from_json(item) for item in data["curve"]),
            host=None if data["host"] is None else PredictedHost._from_json(data["host"]),
            caveats=tuple(PredictionCaveat._from_json(item) for item in data["caveats"]),
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
    """One sentence of why."""

    kind: str
    """Such as `refused`, `sacrificed`, `chosen` or `estimated`."""
    text: str
    """The sentence."""
    brim: str | None
    """The limit that forbids it, where one does."""
    missing_bytes: int | None
    """By how many bytes."""

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
    """A rehearsal that the answer rests on."""

    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    reused: bool
    """Whether it was made before and kept."""
    age_seconds: float
    """How long ago it was made."""
    seconds: float
    """How long it took when it was made."""
    failed: str | None
    """Where it died before its first steps: its last words."""

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
    """A limit, and what the settings take of it."""

    name: str
    """`host`, `shm` or `gpu`, with a number where there are several."""
    limit_bytes: int
    """Bytes that the job may use."""
    likely_bytes: int
    """The most likely use."""
    safe_bytes: int
    """What 95 of 100 runs stay below."""

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
    """What 95 of 100 runs stay below."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedBytes:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            likely_bytes=data["likely_bytes"],
            safe_bytes=data["safe_bytes"],
        )


@dataclass(frozen=True, slots=True)
class PlannedConfig:
    """The values that the copy of a config file gets."""

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
    """What settings need of the host and of each card."""

    host: PlannedBytes
    """Anonymous and shared memory of all processes together."""
    shm: PlannedBytes
    """Of these, what lies in /dev/shm."""
    gpu: PlannedBytes | None
    """The fullest card; nothing for a job on processors."""
    host_terms: tuple[PlannedTerm, ...]
    """What the host's bytes are for at the fullest moment."""

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
    """One step down."""

    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    changed: tuple[KnobChange, ...]
    """What differs from the rung above."""
    brims: tuple[PlannedBrim, ...]
    """Every limit, and what the rung takes of it."""
    throughput: PlannedThroughput | None
    """How fast it would train; nothing where that is not known."""

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
    """One line of the host's budget."""

    name: str
    """Such as `program`, `dataset`, `worker_copies` or `batches`."""
    likely_bytes: int
    """The most likely value."""
    safe_bytes: int
    """What 95 of 100 runs stay below."""
    reason: str | None
    """Why it is charged like this, where that needs a word."""

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
    """How fast it would train."""

    samples_per_second: float
    """Samples per second."""
    source: str
    """`measured` in an earlier run with these settings, or `estimated` from the rehearsal."""

    @classmethod
    def _from_json(cls, data: Any) -> PlannedThroughput:  # noqa: ANN401
        """Make it from parsed JSON."""
        return cls(
            samples_per_second=data["samples_per_second"],
            source=data["source"],
        )


@dataclass(frozen=True, slots=True)
class WantedSettings:
    """The settings that were wanted: the first value of each knob."""

    settings: dict[str, bool | int | float | str]
    """One value per knob."""
    brims: tuple[PlannedBrim, ...]
    """Every limit that binds, and what they would take of it. Empty where that is not known."""
    throughput: PlannedThroughput | None
    """How fast they would train; nothing where that is not known."""
    result_changes: tuple[str, ...]
    """Knobs whose planned value changes the result of the training."""

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
    """The best settings that fit, why, and the rungs below."""

    schema_version: int
    """The version of this document's form."""
    brimful_version: str
    """The version of brimful that wrote it."""
    job: str
    """The job file."""
    mode: str | None
    """The mode that was asked for."""
    machine: str
    """The machine it is for."""
    fits: bool
    """Whether anything fits. Where nothing does, `settings` is what comes closest."""
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
    """Every limit that binds, and what the settings take of it."""
    throughput: PlannedThroughput | None
    """How fast it would train; nothing where that is not known."""
    reasons: tuple[PlanReason, ...]
    """Why these settings and not better ones."""
    rungs: tuple[PlannedRung, ...]
    """What would be tried next, best first."""
    wanted: WantedSettings
    """What was wanted, and what it would take."""
    rehearsals: tuple[PlanRehearsal, ...]
    """The rehearsals that the answer rests on."""
    isolation: str | None
    """How your files were protected from the script: `overlay`, `redirect`, or `off` where writes were allowed. Nothing where every rehearsal was made before."""
    suppressed: tuple[str, ...]
    """What the script asked of experiment trackers and hubs, and what was not done in the rehearsals made now."""
    connections: tuple[HostConnection, ...]
    """Hosts beyond this machine that the script connected to in the rehearsals made now."""
    seconds: float
    """How long the answer took."""

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
            rehearsals=tuple(PlanRehearsal._from_json(item) for item in data["rehearsals"]),
            isolation=data["isolation"],
            suppressed=tuple(data["suppressed"]),
            connections=tuple(HostConnection._from_json(item) for item in data["connections"]),
            seconds=data["seconds"],
        )
