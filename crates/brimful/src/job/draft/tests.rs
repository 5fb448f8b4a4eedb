//! Drafts are read by our own reader, as they are and with their comments taken off.

use proptest::prelude::*;

use crate::job::draft::{Accepts, Framework, ScriptOption, Takes, draft};
use crate::job::{Choices, ConfigFile, ConfigKey, Settings, Value, config_keys, read};

fn option(flags: &[&str], default: impl Into<Option<Value>>) -> ScriptOption {
    ScriptOption {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        default: default.into(),
        ..ScriptOption::default()
    }
}

fn switch(flags: &[&str], takes: Takes, default: bool) -> ScriptOption {
    ScriptOption {
        takes,
        ..option(flags, Value::Flag(default))
    }
}

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

/// Knobs that are commented out, without their #.
fn uncommented(text: &str) -> String {
    let mut in_knobs = false;
    text.lines()
        .map(|line| {
            in_knobs = if line.starts_with('[') {
                line == "[knobs]"
            } else {
                in_knobs
            };
            match line.strip_prefix("# ") {
                Some(rest) if in_knobs && rest.contains(" = [") => rest,
                _ => line,
            }
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn plain_script() -> Accepts {
    Accepts {
        framework: Framework::Argparse,
        options: vec![
            option(&["--output"], Value::from("outputs")),
            ScriptOption {
                help: "height of an image\nin pixels".into(),
                ..option(&["--resolution"], Value::Whole(128))
            },
            option(&["-b", "--batch-size"], Value::Whole(32)),
            option(&["--accumulate"], Value::Whole(1)),
            option(&["--eval-batch-size"], Value::Whole(8)),
            option(&["-j", "--workers"], Value::Whole(4)),
            ScriptOption {
                choices: ["fork", "forkserver", "spawn"].map(Value::from).to_vec(),
                ..option(&["--start-method"], Value::from("forkserver"))
            },
            option(&["--prefetch"], Value::Whole(2)),
            switch(&["--pin-memory", "--no-pin-memory"], Takes::Both, true),
            switch(&["--checkpointing"], Takes::Nothing, false),
            option(&["--epochs"], Value::Whole(4)),
            option(&["--max-steps"], None),
            option(&["--resume"], None),
        ],
        ..Accepts::default()
    }
}

#[test]
fn a_plain_script() {
    let drafted = draft(
        &words("python train.py --data x.h5 --batch-size 64 --accumulate=2 --workers 4"),
        &plain_script(),
    );
    assert_eq!(
        drafted.text,
        r#"# Job file: how the training command is started, and which settings brimful may change so that it fits in memory.
# Created by `brimful init`. Check it before you use it with `brimful plan` or `brimful run`.

[job]
# {name} is replaced by the value of a knob. {name?text} is replaced by the text if the knob is true, else removed.
# A knob without a placeholder is added at the end, as --name value.
command = [
  "python", "train.py",
  "--data", "x.h5",
  "--batch-size", "{micro_batch}",
  "--accumulate={accumulation}",
  "--workers", "{workers}",
  "--eval-batch-size", "{eval_batch}",
  "--prefetch", "{prefetch}",
  "{pin_memory?--pin-memory|--no-pin-memory}",
  "--start-method", "{start_method}",
  "{activation_checkpointing?--checkpointing}",
]
# Where the script writes checkpoints, guessed from --output. brimful resumes from the last complete one.
checkpoints = "outputs/**/*.pt"
# Arguments that are added to resume from a checkpoint.
resume = ["--resume", "{checkpoint}"]

[keep]
# Samples per optimizer step, never changed: 64 per forward pass x 2 accumulated.
effective_batch = 128

[knobs]
# "auto" lets brimful choose. In a list, the first value is preferred and the others are allowed.
# --batch-size: samples per forward pass; smaller values accumulate gradients over more passes
micro_batch = "auto"
# --eval-batch-size: samples per evaluation batch; does not change the result
eval_batch = [8, 4, 2, 1]
# --workers: DataLoader worker processes; each needs host memory
workers = [4, 2, 1, 0]
# --prefetch: batches that each worker prepares in advance
prefetch = "auto"
# --pin-memory: page-locked batches; faster to copy to the GPU, cannot be swapped out
pin_memory = [true, false]
# --start-method: how workers are started; fork shares loaded data, spawn copies it
start_method = ["forkserver", "fork", "spawn"]
# --checkpointing: recompute activations in the backward pass; slower, but needs far less GPU memory
activation_checkpointing = [false, true]

# These knobs change the training result. Uncomment them to let brimful change them, in the order of `sacrifice`.
# resolution = [128, 96, 64]  # --resolution: height of an image in pixels
# sacrifice = ["resolution"]

# A mode sets other values: `brimful plan --mode debug`, `brimful run --mode debug`.
[modes.debug]
max_steps = 20

[modes.quick]
max_steps = 200
"#
    );
    let file = read(&uncommented(&drafted.text)).unwrap();
    let job = file.job(Some("debug"), &[]).unwrap();
    assert_eq!(job.sacrifice, ["resolution"]);
    assert_eq!(job.problems(), []);
    let mut settings = Settings::default();
    settings.set("micro_batch", 32u64);
    settings.set("pin_memory", false);
    assert_eq!(
        job.render(&settings, None).command.join(" "),
        "python train.py --data x.h5 --batch-size 32 --accumulate=4 --workers 4 --eval-batch-size 8 --no-pin-memory \
         --start-method forkserver --resolution 128 --max-steps 20"
    );
}

#[test]
fn a_hugging_face_script_under_a_launcher() {
    let accepts = Accepts {
        framework: Framework::HuggingFace,
        options: vec![
            option(
                &["--output_dir", "--output-dir"],
                Value::from("trainer_output"),
            ),
            option(
                &[
                    "--per_device_train_batch_size",
                    "--per-device-train-batch-size",
                ],
                Value::Whole(8),
            ),
            option(
                &[
                    "--gradient_accumulation_steps",
                    "--gradient-accumulation-steps",
                ],
                Value::Whole(1),
            ),
            option(&["--max_steps", "--max-steps"], Value::Whole(-1)),
            switch(
                &["--gradient_checkpointing", "--gradient-checkpointing"],
                Takes::Word,
                false,
            ),
            switch(&["--bf16"], Takes::Word, false),
            option(
                &["--dataloader_num_workers", "--dataloader-num-workers"],
                Value::Whole(0),
            ),
            option(
                &["--resume_from_checkpoint", "--resume-from-checkpoint"],
                None,
            ),
        ],
        ..Accepts::default()
    };
    let command = words(
        "torchrun --nproc-per-node 2 train.py --output_dir out --per_device_train_batch_size 4",
    );
    let text = draft(&command, &accepts).text;
    let job = read(&text).unwrap().job(Some("debug"), &[]).unwrap();
    assert_eq!(job.effective_batch, Some(8));
    assert_eq!(job.checkpoints, ["out/checkpoint-*"]);
    assert_eq!(job.resume, ["--resume_from_checkpoint", "{checkpoint}"]);
    let mut settings = Settings::default();
    settings.set("micro_batch", 2u64);
    settings.set("accumulation", 2u64);
    settings.set("workers", 1u64);
    assert_eq!(
        job.render(&settings, None).command.join(" "),
        "torchrun --nproc-per-node 2 train.py --output_dir out --per_device_train_batch_size 2 \
         --gradient_accumulation_steps 2 --dataloader_num_workers 1 --gradient_checkpointing false --max_steps 20"
    );
    assert!(
        text.contains("# bf16 = [false, true]  # --bf16\n"),
        "{text}"
    );
}

#[test]
fn a_lightning_script_with_options_that_its_parser_does_not_list() {
    let accepts = Accepts {
        framework: Framework::Lightning,
        options: vec![
            option(&["--trainer.accumulate_grad_batches"], Value::Whole(1)),
            option(&["--trainer.max_steps"], Value::Whole(-1)),
            option(&["--trainer.precision"], None),
            option(&["--trainer.default_root_dir"], None),
            option(&["--ckpt_path"], None),
        ],
        ..Accepts::default()
    };
    let command = words(
        "python main.py fit --data.init_args.batch_size=16 --data.init_args.num_workers 2 --model M",
    );
    let drafted = draft(&command, &accepts);
    assert_eq!(drafted.knobs, ["micro_batch", "workers"]);
    let job = read(&drafted.text)
        .unwrap()
        .job(Some("debug"), &[])
        .unwrap();
    assert_eq!(job.checkpoints, ["**/*.ckpt"]);
    let mut settings = Settings::default();
    settings.set("micro_batch", 8u64);
    assert_eq!(
        job.render(&settings, Some("a.ckpt")).command.join(" "),
        "python main.py fit --data.init_args.batch_size=8 --data.init_args.num_workers 2 --model M \
         --trainer.accumulate_grad_batches 2 --trainer.max_steps 20 --ckpt_path a.ckpt"
    );
}

#[test]
fn a_script_that_tells_nothing_gets_a_file_that_starts_it() {
    let text = draft(&words("./train {x}"), &Accepts::default()).text;
    let job = read(&text).unwrap().job(None, &[]).unwrap();
    assert_eq!(job.knobs, []);
    assert_eq!(
        job.render(&Settings::default(), None).command,
        ["./train", "{x}"]
    );
    // What is typed is known all the same.
    let text = draft(
        &words("python t.py --batch-size 8 --num_workers 3"),
        &Accepts::default(),
    )
    .text;
    let job = read(&text).unwrap().job(None, &[]).unwrap();
    assert_eq!(
        job.knob("workers").unwrap().choices,
        Choices::Listed([3, 1, 0].map(Value::Whole).to_vec())
    );
    assert!(
        text.contains(
            "--batch-size stays fixed: the script has no option for gradient accumulation"
        )
    );
}

#[test]
fn odd_switches() {
    let accepts = |option| Accepts {
        options: vec![option],
        ..Accepts::default()
    };
    let rendered = |option: ScriptOption, on: bool| {
        let text = draft(&words("t"), &accepts(option)).text;
        let job = read(&text).unwrap().job(None, &[]).unwrap();
        let mut settings = Settings::default();
        settings.set("pin_memory", on);
        job.render(&settings, None).command.join(" ")
    };
    let off = switch(&["--no-pin-memory"], Takes::NothingOff, true);
    assert_eq!(rendered(off.clone(), true), "t");
    assert_eq!(rendered(off, false), "t --no-pin-memory");
    let any = switch(&["--pin-memory"], Takes::AnyText, true);
    assert_eq!(rendered(any.clone(), true), "t --pin-memory=1");
    assert_eq!(rendered(any, false), "t --pin-memory=");
}

fn with_config(path: &str, text: &str) -> Accepts {
    Accepts {
        configs: vec![ConfigFile {
            path: path.into(),
            keys: config_keys(text).unwrap(),
        }],
        ..Accepts::default()
    }
}

#[test]
fn a_config_file_is_read_by_the_names_of_its_keys() {
    let accepts = with_config(
        "lora.yml",
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\nsequence_len: 4096\nbf16: auto\n\
         gradient_checkpointing: false\nnum_epochs: 4\nmax_steps: 3\nval_set_size: 0.1\n\
         dataloader_num_workers: 8\nresume_from_checkpoint:\noutput_dir: ./out\ndatasets:\n- path: x\n",
    );
    let drafted = draft(&words("axolotl train lora.yml"), &accepts);
    assert_eq!(
        drafted.knobs,
        ["micro_batch", "workers", "activation_checkpointing"]
    );
    assert!(drafted.missing.is_empty(), "{:?}", drafted.missing);
    let (_, tail) = drafted.text.split_once("[knobs]").unwrap();
    assert_eq!(
        tail,
        r#"
# "auto" lets brimful choose. In a list, the first value is preferred and the others are allowed.
# micro_batch_size in lora.yml: samples per forward pass; smaller values accumulate gradients over more passes
micro_batch = "auto"
# dataloader_num_workers in lora.yml: DataLoader worker processes; each needs host memory
workers = [8, 4, 2, 1, 0]
# gradient_checkpointing in lora.yml: recompute activations in the backward pass; slower, but needs far less GPU memory
activation_checkpointing = [false, true]

# These knobs change the training result. Uncomment them to let brimful change them, in the order of `sacrifice`.
# sequence_len = [4096, 3072, 2048]  # sequence_len in lora.yml (and its line in [config])
# sacrifice = ["sequence_len"]

# Values in config files. brimful passes a copy with these values to the command; your file is never changed.
[config."lora.yml"]
micro_batch_size = "{micro_batch}"
gradient_accumulation_steps = "{accumulation}"
dataloader_num_workers = "{workers}"
gradient_checkpointing = "{activation_checkpointing}"
resume_from_checkpoint = "{checkpoint}"
max_steps = "{max_steps}"
# sequence_len = "{sequence_len}"

# A mode sets other values: `brimful plan --mode debug`, `brimful run --mode debug`.
[modes.debug]
max_steps = 3
"#
    );
    let job = read(&drafted.text).unwrap().job(None, &[]).unwrap();
    assert_eq!(job.effective_batch, Some(8));
    assert_eq!(job.checkpoints, ["./out/checkpoint-*"]);
    let rendered = job.render(&Settings::default(), None);
    assert_eq!(rendered.command, ["axolotl", "train", "lora.yml"]);
}

#[test]
fn sections_of_a_config_file_and_what_was_typed() {
    let accepts = with_config(
        "c.yaml",
        "val:\n  loader: {batch_size: 64}\ntrain:\n  loader:\n    batch_size: 16\n    num_workers: 6\n\
         trainer: {accumulate_grad_batches: 2, max_epochs: 30}\nimage_size: 224\nnames: [1, 2]\n",
    );
    let command = words("python train.py --config=c.yaml --num_workers 3");
    let drafted = draft(&command, &accepts);
    assert_eq!(drafted.knobs, ["micro_batch", "eval_batch", "workers"]);
    let job = read(&drafted.text)
        .unwrap()
        .job(Some("debug"), &[])
        .unwrap();
    assert_eq!(job.effective_batch, Some(32));
    let rendered = job.render(&Settings::default().with("micro_batch", 8u64), None);
    assert_eq!(
        rendered.command.join(" "),
        "python train.py --config=c.yaml --num_workers 3"
    );
    let entries: Vec<String> = rendered.config[0]
        .entries
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(
        entries,
        [
            "train.loader.batch_size=8",
            "trainer.accumulate_grad_batches=4",
            "val.loader.batch_size=64",
            "trainer.max_epochs=1",
        ]
    );
    assert!(drafted.text.contains("# image_size = [224, 168, 112]"));
    assert!(!drafted.text.contains("[modes.quick]"));
}

#[test]
fn overrides_of_hydra_become_places() {
    let key = |key: &str, value: Value| ScriptOption {
        takes: match value {
            Value::Flag(_) => Takes::Word,
            _ => Takes::Value,
        },
        ..option(&[key], value)
    };
    let accepts = Accepts {
        framework: Framework::Hydra,
        options: vec![
            key("train.batch_size", Value::Whole(16)),
            key("train.accumulate", Value::Whole(1)),
            key("data.num_workers", Value::Whole(4)),
            key("train.compile", Value::Flag(true)),
            key("train.max_steps", Value::Whole(1000)),
            key("model.width", Value::Whole(512)),
        ],
        ..Accepts::default()
    };
    let command = words("python train.py +experiment=a train.batch_size=32 train.compile=True");
    let drafted = draft(&command, &accepts);
    assert_eq!(drafted.knobs, ["micro_batch", "workers", "compile"]);
    let job = read(&drafted.text)
        .unwrap()
        .job(Some("debug"), &[])
        .unwrap();
    let rendered = job.render(&Settings::default().with("micro_batch", 8u64), None);
    assert_eq!(
        rendered.command.join(" "),
        "python train.py +experiment=a train.batch_size=8 train.compile=true train.accumulate=4 \
         data.num_workers=4 train.max_steps=20"
    );
    assert!(
        drafted.text.contains(
            "# width = [512, 384, 256]  # model.width (and in the command: \"model.width={width}\")"
        ),
        "{}",
        drafted.text
    );
}

fn any_option() -> impl Strategy<Value = ScriptOption> {
    let name = proptest::sample::select(vec![
        "batch-size",
        "batch_size",
        "b",
        "accum",
        "workers",
        "prefetch",
        "pin_memory",
        "no-pin-memory",
        "resolution",
        "model",
        "resume",
        "output",
        "epochs",
        "max_steps",
        "compile",
        "checkpointing",
        "start_method",
        "x{y}",
        "é",
        "eval_batch_size",
        "data.batch_size",
        "bf16",
        "steps",
    ]);
    let takes = proptest::sample::select(vec![
        Takes::Value,
        Takes::Nothing,
        Takes::NothingOff,
        Takes::Both,
        Takes::Word,
        Takes::AnyText,
    ]);
    let value = prop_oneof![
        Just(None),
        any::<i64>().prop_map(|number| Some(Value::Whole(number))),
        (0i64..70).prop_map(|number| Some(Value::Whole(number))),
        any::<bool>().prop_map(|flag| Some(Value::Flag(flag))),
        proptest::num::f64::NORMAL.prop_map(|number| Some(Value::Number(number))),
        "[ -~\n]{0,5}".prop_map(|text| Some(Value::Text(text))),
    ];
    (
        name,
        takes,
        value.clone(),
        proptest::collection::vec(value, 0..3),
        ".{0,6}",
    )
        .prop_map(|(name, takes, default, choices, help)| ScriptOption {
            flags: vec![format!("--{name}")],
            dest: name.to_owned(),
            takes,
            default,
            choices: choices.into_iter().flatten().collect(),
            help,
        })
}

proptest! {
    #[test]
    fn every_draft_is_read(
        options in proptest::collection::vec(any_option(), 0..8),
        typed in proptest::collection::vec("(--)?(batch-size|accum|workers|model|pin_memory|max_steps|bf16|-?[0-9]{1,3}|true|[{}a-z\"\\\\]{1,3})(=[{}a-z0-9]{0,3})?", 0..8),
        framework in proptest::sample::select(vec![Framework::Argparse, Framework::HuggingFace, Framework::Lightning, Framework::Hydra]),
        overrides in any::<bool>(),
        keys in proptest::collection::vec(any_option(), 0..6),
    ) {
        let mut command = vec!["python".to_owned(), "train.py".to_owned(), "--config=a.yaml".to_owned()];
        command.extend(typed);
        let key = |option: ScriptOption| ConfigKey { key: option.dest, value: option.default };
        let configs = vec![ConfigFile { path: "a.yaml".into(), keys: keys.into_iter().map(key).collect() }];
        let mut options: Vec<ScriptOption> = options;
        if overrides {
            for option in &mut options {
                option.flags = vec![option.dest.clone()];
            }
        }
        let text = draft(&command, &Accepts { framework, options, configs }).text;
        let file = read(&text);
        prop_assert!(file.is_ok(), "{:?}\n{}", file, text);
        let open = uncommented(&text);
        let file = read(&open);
        prop_assert!(file.is_ok(), "{:?}\n{}", file, open);
    }
}
