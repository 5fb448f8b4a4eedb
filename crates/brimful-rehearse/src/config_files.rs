//! Copies of the config files that a job's command names, with other values in them. The originals are never changed.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brimful::job::{
    ConfigError, ConfigFile, Job, MAX_CONFIG_BYTES, Rendered, config_keys, with_values,
};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_private::TempDir;

/// A config file that cannot be read or copied.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    #[error("failed to read the config file `{path}`")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("invalid config file `{path}`")]
    Config {
        path: String,
        #[source]
        source: ConfigError,
    },
    #[error("failed to copy the config file `{path}` to the temporary directory")]
    Copy {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl UserError for ConfigFileError {
    fn kind(&self) -> ErrorKind {
        match self {
            ConfigFileError::Read { .. } | ConfigFileError::Config { .. } => ErrorKind::Input,
            ConfigFileError::Copy { .. } => ErrorKind::Environment,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        vec![match self {
            ConfigFileError::Read { .. } => Hint::text(
                "start brimful in the directory that the path in [config] is relative to",
            ),
            ConfigFileError::Config { source, .. } => Hint::text(source.hint()),
            ConfigFileError::Copy { .. } => {
                Hint::text("check that the temporary directory (TMPDIR) exists and has free space")
            }
        }]
    }
}

/// The config files of a job as they were at the start, and a private directory for their copies, which is removed with
/// it. Later attempts of a run use the same text, even if the user has changed the file since.
#[derive(Debug)]
pub struct ConfigFiles {
    texts: Vec<(String, String)>,
    directory: PathBuf,
    /// Removes the directory, if it is a temporary one.
    _temporary: Option<TempDir>,
    n_written: usize,
}

impl ConfigFiles {
    /// Reads the files that a job changes; nothing where it changes none. Every key is checked.
    pub fn open(job: &Job) -> Result<Option<ConfigFiles>, ConfigFileError> {
        let mut texts = Vec::new();
        for file in &job.config {
            let text = read(&file.path)?;
            let unchanged = |(key, _): &(String, _)| (key.clone(), false.into());
            let values: Vec<_> = file.entries.iter().map(unchanged).collect();
            with_values(&text, &values).map_err(|source| ConfigFileError::Config {
                path: file.path.clone(),
                source,
            })?;
            texts.push((file.path.clone(), text));
        }
        let Some((path, _)) = texts.first() else {
            return Ok(None);
        };
        let places = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
        let directory =
            brimful_private::temporary_directory(&places, "brimful-config-").map_err(|source| {
                ConfigFileError::Copy {
                    path: path.clone(),
                    source,
                }
            })?;
        Ok(Some(ConfigFiles {
            texts,
            directory: directory.path().to_owned(),
            _temporary: Some(directory),
            n_written: 0,
        }))
    }

    /// The same from paths and texts that were read before, with copies in a directory of the caller.
    pub fn with_texts(texts: Vec<(String, String)>, directory: PathBuf) -> ConfigFiles {
        ConfigFiles {
            texts,
            directory,
            _temporary: None,
            n_written: 0,
        }
    }

    /// Paths and texts of the files.
    pub fn texts(&self) -> &[(String, String)] {
        &self.texts
    }

    /// Writes the copies of a rendered job, and returns the command that names them. A copy keeps the file's name.
    pub fn write(&mut self, rendered: &Rendered) -> Result<Vec<String>, ConfigFileError> {
        let mut copies = Vec::new();
        for file in &rendered.config {
            let Some((path, text)) = self.texts.iter().find(|(path, _)| *path == file.path) else {
                continue;
            };
            let changed =
                with_values(text, &file.entries).map_err(|source| ConfigFileError::Config {
                    path: path.clone(),
                    source,
                })?;
            self.n_written += 1;
            let directory = self.directory.join(self.n_written.to_string());
            let name = Path::new(path).file_name().unwrap_or("config".as_ref());
            let copy = directory.join(name);
            brimful_private::new_directory(&directory)
                .and_then(|()| brimful_private::write_new(&copy, changed.as_bytes()))
                .map_err(|source| ConfigFileError::Copy {
                    path: path.clone(),
                    source,
                })?;
            copies.push((path.clone(), copy.to_string_lossy().into_owned()));
        }
        Ok(rendered.command_with(&copies))
    }

    /// The originals.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let absolute = |(path, _): &(String, String)| {
            std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
        };
        self.texts.iter().map(absolute).collect()
    }
}

/// The config files that a command names, and those that cannot be read with the reason.
pub fn named_in(command: &[String]) -> (Vec<ConfigFile>, Vec<ConfigFileError>) {
    const MAX_FILES: usize = 16;
    let mut files: Vec<ConfigFile> = Vec::new();
    let mut errors = Vec::new();
    for word in command {
        let path = match word.split_once('=') {
            Some((_, path)) if !Path::new(word).is_file() => path,
            _ => word,
        };
        let ending = Path::new(path).extension().and_then(|end| end.to_str());
        let is_config = matches!(ending, Some("yaml" | "yml" | "json"));
        if !is_config
            || files.len() == MAX_FILES
            || files.iter().any(|file| file.path == path)
            || !Path::new(path).is_file()
        {
            continue;
        }
        let keys = read(path).and_then(|text| {
            config_keys(&text).map_err(|source| ConfigFileError::Config {
                path: path.to_owned(),
                source,
            })
        });
        match keys {
            Ok(keys) => files.push(ConfigFile {
                path: path.to_owned(),
                keys,
            }),
            Err(error) => errors.push(error),
        }
    }
    (files, errors)
}

fn read(path: &str) -> Result<String, ConfigFileError> {
    let bytes = || {
        let mut bytes = Vec::new();
        brimful_private::open_named(Path::new(path))?
            .take(MAX_CONFIG_BYTES as u64 + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = bytes().map_err(|source| ConfigFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let unusable = |source| ConfigFileError::Config {
        path: path.to_owned(),
        source,
    };
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(unusable(ConfigError::TooLarge));
    }
    String::from_utf8(bytes).map_err(|_| unusable(ConfigError::NotText))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brimful::job::Settings;

    use super::*;

    #[test]
    fn a_copy_has_the_values_and_the_original_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.yaml");
        let text = "# mine\nbatch: 32 # wanted\nworkers: 4\n";
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let job = brimful::job::read(&format!(
            "[job]\ncommand = [\"t\", \"--config={path}\"]\n[knobs]\nworkers = [2, 0]\n[config.\"{path}\"]\nworkers = \"{{workers}}\""
        ))
        .unwrap()
        .job(None, &[])
        .unwrap();
        let mut files = ConfigFiles::open(&job).unwrap().unwrap();
        let command = files
            .write(&job.render(&Settings::default(), None))
            .unwrap();
        let copy = PathBuf::from(command[1].strip_prefix("--config=").unwrap());
        assert_ne!(copy.to_str(), Some(path));
        assert_eq!(copy.file_name().unwrap(), "train.yaml");
        assert_eq!(
            fs::read_to_string(&copy).unwrap(),
            text.replace("workers: 4", "workers: 2")
        );
        assert_eq!(fs::read_to_string(path).unwrap(), text);
        let (found, errors) = named_in(&["t".into(), format!("--config={path}"), path.into()]);
        assert!(errors.is_empty());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].keys.len(), 2);
        drop(files);
        assert!(!copy.exists());

        // A key that is missing is reported before anything is started.
        fs::write(path, "worker: 4\n").unwrap();
        let error = ConfigFiles::open(&job).unwrap_err();
        assert_eq!(error.hints(), [Hint::text("did you mean `worker`?")]);
        fs::write(path, "a: [").unwrap();
        let (found, errors) = named_in(&[path.into()]);
        assert_eq!((found.len(), errors.len()), (0, 1));
    }
}
