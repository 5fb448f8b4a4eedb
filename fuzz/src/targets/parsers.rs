//! Every parser of a kernel file, a variable or a package's metadata, on any text.
use brimful::allocator;
use brimful::machine::{
    DeviceIdentity, DeviceOrder, PythonVersion, TorchVersion, owner_of, torch_devices,
};
use brimful::suggest::closest;
use brimful::units::Bytes;
use brimful_probe::{cgroup_parse, file_parse, python_parse};

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let text = text.as_ref();

    for membership in cgroup_parse::memberships(text) {
        let _ = owner_of(&membership.path);
        let _ = cgroup_parse::strip_path_prefix(&membership.path, "/docker/ab");
    }
    let _ = cgroup_parse::mounts(text);
    let _ = cgroup_parse::v1_limit(text);
    let _ = cgroup_parse::v2_limit(text);
    let _ = cgroup_parse::v2_cpu_quota(text);
    for name in ["MemTotal", "some", "anon", ""] {
        let _ = file_parse::field(text, name);
        let _ = file_parse::counter(text, name);
        let _ = file_parse::meminfo_bytes(text, name);
    }
    let _ = file_parse::list_length(text);
    let _ = python_parse::pyvenv_value(text, "home");
    let _ = python_parse::version_in_name(text);
    let _ = python_parse::torch_version_file(text);
    let _ = python_parse::metadata_version(text);
    let _ = TorchVersion::parse(text);
    let _ = PythonVersion::parse(text);
    let _ = text.parse::<Bytes>();
    let _ = allocator::options(text);
    let _ = closest(text, ["colab-t4", "kaggle-p100"]);

    let card = |uuid: &str| DeviceIdentity {
        name: Some("Tesla T4".into()),
        uuid: Some(uuid.into()),
        mig_uuids: vec![format!("MIG-{uuid}")],
        mig_enabled: false,
    };
    let devices = [card("GPU-aaa1"), card("GPU-aab2")];
    let _ = torch_devices(&devices, Some(text), DeviceOrder::PciBusId);
}
