//! The command line of `nvidia-smi`.

use super::values::{SmiRefusal, codes};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SmiArguments {
    pub(super) form: SmiForm,
    /// The GPUs of `-i`.
    pub(super) ids: Option<String>,
    /// The file of `-f`.
    pub(super) file: Option<String>,
}

/// What is printed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SmiForm {
    Table,
    List,
    Document {
        xml: bool,
    },
    Gpus {
        fields: Vec<String>,
        csv: CsvFormat,
    },
    Processes {
        fields: Vec<String>,
        csv: CsvFormat,
    },
    Version,
    Help,
    /// A setting of a GPU, such as its power limit: accepted, and nothing happens.
    NothingChanged,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CsvFormat {
    pub(super) has_header: bool,
    pub(super) has_units: bool,
}

pub(super) const HELP: &str = "\
brimful answers for nvidia-smi while it rehearses a script:

    nvidia-smi [-i ID]                                  Table of the GPUs
    nvidia-smi -L                                       List of the GPUs with their UUIDs
    nvidia-smi -q [-x]                                  All values, as text or as XML
    nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]
    nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]
";

/// Options that change a setting and take a value.
const SETTINGS: &[&str] = &[
    "-pm",
    "--persistence-mode",
    "-pl",
    "--power-limit",
    "-c",
    "--compute-mode",
    "-e",
    "--ecc-config",
    "-ac",
    "--applications-clocks",
    "-lgc",
    "--lock-gpu-clocks",
    "-lmc",
    "--lock-memory-clocks",
    "-am",
    "--accounting-mode",
];

/// Options that reset a setting.
const RESETS: &[&str] = &[
    "-rac",
    "--reset-applications-clocks",
    "-rgc",
    "--reset-gpu-clocks",
    "-rmc",
    "--reset-memory-clocks",
];

/// Commands with options of their own, which nothing here answers.
const COMMANDS: &[&str] = &[
    "boost-slider",
    "clocks",
    "conf-compute",
    "daemon",
    "dmon",
    "drain",
    "encodersessions",
    "fbcsessions",
    "mig",
    "nvlink",
    "pmon",
    "power-smoothing",
    "replay",
    "topo",
    "vgpu",
];

/// What the options say so far.
#[derive(Debug, Default)]
struct Options {
    ids: Option<String>,
    file: Option<String>,
    format: Option<String>,
    query: Option<(String, String)>,
    is_list: bool,
    is_document: bool,
    is_xml: bool,
    is_version: bool,
    is_help: bool,
    is_setting: bool,
}

pub(super) fn parse(words: &[String]) -> Result<SmiArguments, SmiRefusal> {
    if let Some(command) = words
        .first()
        .filter(|word| COMMANDS.contains(&word.as_str()))
    {
        return Err(SmiRefusal {
            message: format!(
                "Not Supported: brimful answers for nvidia-smi, and `nvidia-smi {command}` has no answer for a phantom GPU"
            ),
            code: codes::NOT_AVAILABLE,
        });
    }
    let mut options = Options::default();
    let mut rest = words.iter().map(String::as_str).peekable();
    while let Some(word) = rest.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (word, None),
        };
        let mut value = || {
            let found = value.or_else(|| rest.next()).map(str::to_owned);
            found.ok_or_else(|| {
                SmiRefusal::invalid(format!(
                    "ERROR: Option {name} is missing its value. Please run 'nvidia-smi -h' for help.\n"
                ))
            })
        };
        match name {
            "-i" | "--id" => options.ids = Some(value()?),
            "-f" | "--filename" => options.file = Some(value()?),
            "--format" => options.format = Some(value()?),
            "-d" | "--display" => drop(value()?),
            "-L" | "--list-gpus" => options.is_list = true,
            "-q" | "--query" => options.is_document = true,
            "-x" | "--xml-format" => options.is_xml = true,
            "-h" | "--help" => options.is_help = true,
            "--version" => options.is_version = true,
            "--dtd" | "-u" | "--unit" => {}
            "-l" | "--loop" | "-lms" | "--loop-ms" => {
                // The number may be left out.
                let _ = rest.next_if(|next| next.parse::<u64>().is_ok());
            }
            _ if SETTINGS.contains(&name) => {
                value()?;
                options.is_setting = true;
            }
            _ if RESETS.contains(&name) => options.is_setting = true,
            "--query-gpu" | "--query-compute-apps" | "--query-apps" => {
                let query = (name.to_owned(), value()?);
                if options.query.replace(query).is_some() {
                    return Err(SmiRefusal::invalid(
                        "Only one --query-* switch can be used at a time.",
                    ));
                }
            }
            _ => {
                return Err(SmiRefusal::invalid(format!(
                    "ERROR: Option {word} is not recognized. Please run 'nvidia-smi -h' for help.\n"
                )));
            }
        }
    }
    options.arguments()
}

impl Options {
    fn arguments(self) -> Result<SmiArguments, SmiRefusal> {
        let form = match self.query {
            Some((name, list)) => {
                let csv = csv_format(self.format.as_deref())?;
                let fields = list
                    .split(',')
                    .map(|field| field.trim().to_owned())
                    .collect();
                if name == "--query-gpu" {
                    SmiForm::Gpus { fields, csv }
                } else {
                    SmiForm::Processes { fields, csv }
                }
            }
            None if self.is_help => SmiForm::Help,
            None if self.is_version => SmiForm::Version,
            None if self.is_list => SmiForm::List,
            None if self.is_document => SmiForm::Document { xml: self.is_xml },
            None if self.is_setting => SmiForm::NothingChanged,
            None => SmiForm::Table,
        };
        Ok(SmiArguments {
            form,
            ids: self.ids,
            file: self.file,
        })
    }
}

fn csv_format(text: Option<&str>) -> Result<CsvFormat, SmiRefusal> {
    let Some(text) = text else {
        return Err(SmiRefusal::invalid(
            "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.",
        ));
    };
    let mut is_csv = false;
    let mut format = CsvFormat {
        has_header: true,
        has_units: true,
    };
    for part in text.split(',') {
        match part.trim() {
            "csv" => is_csv = true,
            "noheader" => format.has_header = false,
            "nounits" => format.has_units = false,
            other => {
                return Err(SmiRefusal::invalid(format!(
                    "\"{other}\" is not a valid format. Please run 'nvidia-smi -h' for help."
                )));
            }
        }
    }
    if is_csv {
        Ok(format)
    } else {
        Err(SmiRefusal::invalid(
            "\"csv\" is missing from the format. Please run 'nvidia-smi -h' for help.",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::printed;
    use super::*;

    fn parsed(words: &[&str]) -> Result<SmiArguments, SmiRefusal> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words)
    }

    fn check_form(words: &[&str], expected: SmiForm) {
        let found = parsed(words).map(|arguments| arguments.form);
        assert_eq!(found, Ok(expected), "{words:?}");
    }

    fn check_refused(words: &[&str], code: u8, message: &str) {
        let refused = parsed(words).unwrap_err();
        assert_eq!(refused.code, code, "{words:?}");
        assert!(refused.message.contains(message), "{}", refused.message);
    }

    #[test]
    fn forms_are_told_by_their_options() {
        check_form(&[], SmiForm::Table);
        check_form(&["-i", "0"], SmiForm::Table);
        check_form(&["-L"], SmiForm::List);
        check_form(&["-q"], SmiForm::Document { xml: false });
        check_form(
            &["-x", "-q", "-d", "MEMORY"],
            SmiForm::Document { xml: true },
        );
        check_form(&["-pm", "1"], SmiForm::NothingChanged);
        check_form(&["--power-limit=250", "-i", "0"], SmiForm::NothingChanged);
        check_form(&["-rgc"], SmiForm::NothingChanged);
        let fields = vec!["name".to_owned(), "memory.total".to_owned()];
        let csv = CsvFormat {
            has_header: false,
            has_units: true,
        };
        let expected = SmiForm::Gpus { fields, csv };
        let query = "--query-gpu=name, memory.total";
        check_form(&[query, "--format=csv,noheader"], expected);
        let bare = ["--query-gpu", "name", "--format", "csv,nounits"];
        assert!(matches!(parsed(&bare).unwrap().form, SmiForm::Gpus { .. }));
    }

    #[test]
    fn a_loop_prints_once() {
        for words in [
            &["-l"][..],
            &["-l", "5"],
            &["--loop=1"],
            &["-lms", "100"],
            &["-l", "-L"],
        ] {
            let text = printed(words).unwrap();
            assert_eq!(
                text.matches("GPU 0:").count() + text.matches("+\n| NVIDIA-SMI").count(),
                1
            );
        }
    }

    #[test]
    fn what_is_not_known_is_refused_as_nvidia_smi_does() {
        check_refused(&["--foo"], 2, "ERROR: Option --foo is not recognized.");
        check_refused(&["0"], 2, "ERROR: Option 0 is not recognized.");
        check_refused(&["-i"], 2, "ERROR: Option -i is missing its value.");
        check_refused(&["--query-gpu=name"], 2, "\"--format=\" switch is missing.");
        check_refused(&["--query-gpu=name", "--format=xml"], 2, "\"xml\"");
        check_refused(&["--query-gpu=name", "--format=noheader"], 2, "\"csv\"");
        check_refused(&["topo", "-m"], 3, "nvidia-smi topo");
        let two = [
            "--query-gpu=name",
            "--query-compute-apps=pid",
            "--format=csv",
        ];
        check_refused(&two, 2, "Only one --query-* switch");
    }
}
