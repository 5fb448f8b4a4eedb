//! Landlock and seccomp deny writes outside scratch; a preloaded library redirects them into it. Landlock also denies the
//! nodes of GPUs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use brimful::env_vars;
use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use seccompiler::BpfProgram;

use crate::gpus::Gpus;
use crate::listing::list;
use crate::request::Request;
use crate::seccomp;

/// Devices and kernel interfaces that a command may write to; no file of a user is there. Which processes of `/proc` it may
/// change, the library decides.
const WRITABLE_DEVICES: &[&str] = &[
    "/dev/full",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/random",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
    "/proc",
];

/// What the command is put under, made while memory can be allocated.
#[derive(Debug)]
pub(crate) struct Walls {
    rules: Option<RulesetCreated>,
    /// Without Landlock nothing else would protect files.
    needs_landlock: bool,
    filters: Vec<BpfProgram>,
    /// Variables for the library.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// Builds the walls for a request. They also stand around GPUs that are not hidden in another way.
pub(crate) fn walls(request: &Request, gpus: Option<&Gpus>) -> Result<Walls, String> {
    if !request.redirect_library.is_file() {
        return Err(format!(
            "the library that redirects writes is missing: {}",
            request.redirect_library.display()
        ));
    }
    let abi = landlock_abi();
    if abi < 1 {
        return Err("the kernel has no Landlock, or does not allow it here".into());
    }
    for shared in &request.shared {
        // Landlock allows only what exists. Another command may have made it.
        match brimful_private::new_directory(&shared.layer) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(format!("{}: {error}", shared.layer.display()));
            }
            _ => {}
        }
    }
    let mark = random_mark().map_err(|error| format!("no random number: {error}"))?;
    Ok(Walls {
        rules: Some(rules(request, gpus).map_err(|error| error.to_string())?),
        needs_landlock: true,
        filters: seccomp::filters(mark, abi < 3)?,
        environment: environment(request, mark),
    })
}

/// Builds walls around GPUs only.
pub(crate) fn walls_around(gpus: &Gpus) -> Result<Walls, String> {
    Ok(Walls {
        rules: Some(rules_around(gpus).map_err(|error| error.to_string())?),
        needs_landlock: true,
        filters: Vec::new(),
        environment: Vec::new(),
    })
}

/// Builds walls for a command in namespaces: around signals and sockets without a path, where the kernel has Landlock.
pub(crate) fn walls_of_namespaces() -> Option<Walls> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::Signal | Scope::AbstractUnixSocket)
        .and_then(Ruleset::create)
        .ok();
    rules.map(|rules| Walls {
        rules: Some(rules),
        needs_landlock: false,
        filters: Vec::new(),
        environment: Vec::new(),
    })
}

impl Walls {
    /// Puts this process and its children behind the walls, for good.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        let rules = self.rules.take().ok_or("the walls were closed before")?;
        let status = rules.restrict_self().map_err(|error| error.to_string())?;
        if self.needs_landlock && status.ruleset == RulesetStatus::NotEnforced {
            return Err("the kernel does not enforce Landlock".into());
        }
        seccomp::apply(&self.filters)
    }
}

fn rules(request: &Request, gpus: Option<&Gpus>) -> Result<RulesetCreated, landlock::RulesetError> {
    let writing = AccessFs::from_write(ABI::V6);
    let reading = gpus.map_or(BitFlags::EMPTY, |_| AccessFs::ReadFile.into());
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writing | reading)?
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?
        .create()?;
    if let Some(gpus) = gpus {
        rules = allow(rules, gpus, reading)?;
    }
    let used = Some(Gpus::find()).filter(|_| request.uses_gpus);
    let used: Vec<PathBuf> = used.map_or_else(Vec::new, |gpus| gpus.nodes.into_iter().collect());
    let devices = WRITABLE_DEVICES.iter().map(Path::new);
    let devices = devices.chain(used.iter().map(PathBuf::as_path));
    let own = request
        .writable
        .iter()
        .chain([&request.scratch])
        .chain(request.shared.iter().map(|shared| &shared.layer))
        .map(PathBuf::as_path);
    for path in devices.chain(own) {
        rules = add(rules, path, writing | reading)?;
    }
    Ok(rules)
}

/// Nothing but opening a GPU's node is denied.
fn rules_around(gpus: &Gpus) -> Result<RulesetCreated, landlock::RulesetError> {
    // A node that is opened neither to read nor to write still takes requests.
    let using = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        // Landlock denies moving files to another directory unless that is allowed by name.
        .handle_access(using | AccessFs::Refer)?
        .create()?;
    let rules = add(rules, Path::new("/"), AccessFs::Refer.into())?;
    allow(rules, gpus, using)
}

/// Allows an access to everything but the nodes of GPUs.
fn allow(
    mut rules: RulesetCreated,
    gpus: &Gpus,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    for path in gpus.allowed_paths(&list) {
        rules = add(rules, &path, access)?;
    }
    Ok(rules)
}

/// Allows an access to a path and everything below it. Not every machine has every path.
fn add(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(open) = PathFd::new(path) else {
        return Ok(rules);
    };
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(ABI::V6)
    };
    rules.add_rule(PathBeneath::new(open, access))
}

/// The version of Landlock's interface; 0 without it.
pub(crate) fn landlock_abi() -> i64 {
    const CREATE_RULESET_VERSION: u32 = 1;
    #[expect(
        unsafe_code,
        reason = "the landlock crate does not tell the version of the kernel"
    )]
    // SAFETY: asked for the version, the kernel takes no pointer.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    version.max(0)
}

/// What the library reads; see `brimful-redirect`.
fn environment(request: &Request, mark: u64) -> Vec<(OsString, OsString)> {
    let passed: Vec<&OsStr> = request
        .writable
        .iter()
        .map(|path| path.as_os_str())
        .chain(["/dev", "/proc", "/sys"].map(OsStr::new))
        .collect();
    let shared: Vec<OsString> = request
        .shared
        .iter()
        .map(|shared| {
            let mut text = escape(shared.path.as_os_str(), b"\\:=");
            text.push("=");
            text.push(escape(shared.layer.as_os_str(), b"\\:="));
            text
        })
        .collect();
    let mut variables = vec![
        (
            env_vars::BRIMFUL_REDIRECT.into(),
            request.scratch.clone().into_os_string(),
        ),
        (
            env_vars::BRIMFUL_REDIRECT_PASS.into(),
            join(passed.iter().map(|path| escape(path, b"\\:"))),
        ),
        (
            env_vars::BRIMFUL_REDIRECT_TOKEN.into(),
            format!("{mark:x}").into(),
        ),
    ];
    if !shared.is_empty() {
        variables.push((
            env_vars::BRIMFUL_REDIRECT_SHARED.into(),
            join(shared.into_iter()),
        ));
    }
    variables
}

fn escape(text: &OsStr, special: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    for byte in text.as_bytes() {
        if special.contains(byte) {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

fn join(parts: impl Iterator<Item = OsString>) -> OsString {
    let parts: Vec<OsString> = parts.collect();
    parts.join(OsStr::new(":"))
}

fn random_mark() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
