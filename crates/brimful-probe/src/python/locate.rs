//! Finds the Python that `python train.py` would start, and the directories it imports from.

use std::path::{Path, PathBuf};

use brimful::env_vars;
use brimful::fact::Fact;
use brimful::machine::PythonVersion;

use crate::environment::Environment;
use crate::files::Files;
use crate::python::installation::{Installation, PythonHint};
use crate::python::parse::{pyvenv_value, version_in_name};

/// The installations worth looking at, best guess first.
pub(super) fn candidates(files: &Files, env: &Environment, hint: &PythonHint) -> Vec<Installation> {
    if let Some(executable) = &hint.executable {
        if !hint.import_directories.is_empty() {
            return vec![Installation {
                executable: executable.clone(),
                found_by: "the running Python".into(),
                version: match hint.version {
                    Some(version) => Fact::Known(version),
                    None => Fact::unavailable("the running Python did not say"),
                },
                import_directories: hint.import_directories.clone(),
            }];
        }
        return match pyenv_choice(files, env, hint, executable) {
            Some(chosen) => vec![installation(
                files,
                env,
                &chosen,
                "named by you, chosen by pyenv",
            )],
            None => vec![installation(files, env, executable, "named by you")],
        };
    }
    let mut found = Vec::new();
    if let Some(executable) = first_on_path(files, env) {
        match pyenv_choice(files, env, hint, &executable) {
            Some(chosen) => found.push(installation(files, env, &chosen, "chosen by pyenv")),
            None => found.push(installation(files, env, &executable, "first on PATH")),
        }
    }
    if let Some(directory) = &hint.program_directory {
        let beside = format!("{directory}/python");
        if files.exists(&beside) {
            found.push(installation(
                files,
                env,
                &beside,
                "beside the brimful program",
            ));
        }
    }
    found
}

fn first_on_path(files: &Files, env: &Environment) -> Option<String> {
    let path = env.get(env_vars::PATH)?;
    ["python", "python3"].into_iter().find_map(|name| {
        path.split(':')
            .filter(|directory| directory.starts_with('/'))
            .map(|directory| format!("{}/{name}", directory.trim_end_matches('/')))
            .find(|candidate| files.locate(candidate).is_file())
    })
}

/// pyenv puts a script on PATH that picks a version when it runs; this follows the same three rules.
fn pyenv_choice(
    files: &Files,
    env: &Environment,
    hint: &PythonHint,
    executable: &str,
) -> Option<String> {
    let root = executable.split_once("/shims/")?.0;
    let named = env
        .get(env_vars::PYENV_VERSION)
        .cloned()
        .or_else(|| {
            let directory = PathBuf::from(hint.working_directory.as_deref()?);
            directory.ancestors().find_map(|directory| {
                let path = directory.join(".python-version");
                files.text_up_to(path.to_str()?, 4096).known().cloned()
            })
        })
        .or_else(|| {
            files
                .text_up_to(&format!("{root}/version"), 4096)
                .known()
                .cloned()
        })?;
    let installed = files.names(&format!("{root}/versions"), 1000);
    let installed = installed.known()?;
    named
        .split([':', '\n', ' '])
        .map(str::trim)
        .filter(|version| !version.is_empty() && !version.contains('/'))
        .find_map(|version| {
            // `3.11` stands for the newest 3.11 that is installed.
            let prefix = format!("{version}.");
            let directory = installed.iter().find(|name| *name == version).or_else(|| {
                installed
                    .iter()
                    .rev()
                    .find(|name| name.starts_with(&prefix))
            })?;
            let path = format!("{root}/versions/{directory}/bin/python");
            files.exists(&path).then_some(path)
        })
}

fn installation(
    files: &Files,
    env: &Environment,
    executable: &str,
    found_by: &str,
) -> Installation {
    let mut layouts = Vec::new();
    let environment = pyvenv(files, executable);
    let base_executable = match &environment {
        Some(venv) => {
            layouts.push((venv.prefix.clone(), venv.version));
            venv.base_executable
                .clone()
                .filter(|_| venv.sees_system_packages)
        }
        None => Some(executable.to_owned()),
    };
    if let Some(base) = base_executable {
        layouts.extend(base_layout(files, &base));
    }

    let mut import_directories: Vec<String> = env
        .get(env_vars::PYTHONPATH)
        .map(|paths| {
            paths
                .split(':')
                .filter(|path| path.starts_with('/'))
                .map(Into::into)
                .collect()
        })
        .unwrap_or_default();
    let mut version = None;
    for (prefix, known_version) in layouts {
        let layout_version = known_version.or_else(|| only_version_below(files, &prefix));
        version = version.or(layout_version);
        import_directories.extend(package_directories(files, env, &prefix, layout_version));
    }
    Installation {
        executable: executable.into(),
        found_by: found_by.into(),
        version: match version {
            Some(version) => Fact::Known(version),
            None => Fact::unavailable(format!("no library directory was found for {executable}")),
        },
        import_directories,
    }
}

struct VirtualEnvironment {
    prefix: String,
    version: Option<PythonVersion>,
    base_executable: Option<String>,
    sees_system_packages: bool,
}

/// A virtual environment marks itself with a `pyvenv.cfg` above the executable's directory.
/// The executable there is a link; following it would leave the environment.
fn pyvenv(files: &Files, executable: &str) -> Option<VirtualEnvironment> {
    let prefix = Path::new(executable).parent()?.parent()?.to_str()?;
    let text = files.text_up_to(&format!("{prefix}/pyvenv.cfg"), 16_384);
    let text = text.known()?;
    let version = pyvenv_value(text, "version").or_else(|| pyvenv_value(text, "version_info"));
    Some(VirtualEnvironment {
        prefix: prefix.into(),
        version: version.and_then(PythonVersion::parse),
        base_executable: pyvenv_value(text, "home").map(|home| format!("{home}/python3")),
        sees_system_packages: pyvenv_value(text, "include-system-site-packages")
            .is_some_and(|value| value.eq_ignore_ascii_case("true")),
    })
}

/// The prefix and version of an installation that is no virtual environment.
fn base_layout(files: &Files, executable: &str) -> Option<(String, Option<PythonVersion>)> {
    let real = std::fs::canonicalize(files.locate(executable)).ok()?;
    let root = std::fs::canonicalize(files.locate("/")).ok()?;
    let real = real.strip_prefix(root).ok()?;
    let version = version_in_name(real.file_name()?.to_str()?);
    let prefix = real.parent()?.parent()?.to_str()?;
    Some((format!("/{prefix}"), version))
}

/// The version, where the library directory leaves no doubt.
fn only_version_below(files: &Files, prefix: &str) -> Option<PythonVersion> {
    let names = files.names(&format!("{prefix}/lib"), 10_000);
    let versions: Vec<PythonVersion> = names
        .known()?
        .iter()
        .filter_map(|name| version_in_name(name))
        .collect();
    match versions[..] {
        [only] => Some(only),
        _ => None,
    }
}

fn package_directories(
    files: &Files,
    env: &Environment,
    prefix: &str,
    version: Option<PythonVersion>,
) -> Vec<String> {
    let mut directories = Vec::new();
    if let Some(version) = version {
        let is_environment = files.exists(&format!("{prefix}/pyvenv.cfg"));
        if let Some(home) = env.get(env_vars::HOME)
            && !is_environment
            && !env.contains_key(env_vars::PYTHONNOUSERSITE)
        {
            directories.push(format!("{home}/.local/lib/python{version}/site-packages"));
        }
        if prefix == "/usr" {
            directories.push(format!("/usr/local/lib/python{version}/dist-packages"));
            directories.push("/usr/lib/python3/dist-packages".into());
        }
        directories.push(format!("{prefix}/lib/python{version}/site-packages"));
        directories.push(format!("{prefix}/lib64/python{version}/site-packages"));
    }
    directories.retain(|directory| files.exists(directory));
    directories
}
