//! Command lines.

use proptest::prelude::*;

use crate::job::tests::{SKETCH, job, settings, whole};
use crate::job::{Choices, Knob, Value, knobs};

fn check(text: &str, mode: Option<&str>, words: &str, checkpoint: Option<&str>, expected: &str) {
    let rendered = job(text, mode, &[]).render(&settings(words), checkpoint);
    assert_eq!(rendered.command.join(" "), expected);
}

#[test]
fn the_sketch_is_read_as_it_is_written() {
    let job = job(SKETCH, None, &[]);
    assert_eq!(job.checkpoints, ["outputs/**/last.pt"]);
    assert_eq!(job.resume, ["--resume", "{checkpoint}"]);
    assert_eq!(job.effective_batch, Some(128));
    assert_eq!(job.sacrifice, ["resolution", "model"]);
    let names: Vec<&str> = job.knobs.iter().map(|knob| knob.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "micro_batch",
            "workers",
            "activation_checkpointing",
            "resolution",
            "model"
        ]
    );
    assert_eq!(job.knob("workers").unwrap().choices, Choices::Auto);
    assert_eq!(
        job.knob("resolution").unwrap().choices,
        Choices::Listed(whole(&[32, 24, 16]))
    );
    assert_eq!(job.micro_batches(1), [128, 64, 32, 16, 8, 4, 2, 1]);
    assert_eq!(job.micro_batches(4), [32, 16, 8, 4, 2, 1]);
    assert!(job.values.is_empty());
}

#[test]
fn the_sketch_is_rendered() {
    check(
        SKETCH,
        None,
        "micro_batch=32 accumulation=4 workers=2 activation_checkpointing=true resolution=24 model=full",
        None,
        "python train.py --batch-size 32 --accumulate 4 --workers 2 --activation-checkpointing --resolution 24 --model full",
    );
    // The accumulation follows, what is wanted holds where nothing is set, a mode adds its own, and resume comes last.
    check(
        SKETCH,
        Some("debug"),
        "micro_batch=32 workers=0",
        Some("a/last.pt"),
        "python train.py --batch-size 32 --accumulate 4 --workers 0 --resolution 32 --model full --max-steps 20 --resume a/last.pt",
    );
    // What is not known is left out with its option.
    check(
        SKETCH,
        None,
        "",
        None,
        "python train.py --resolution 32 --model full",
    );
}

fn with(command: &str, knobs: &str) -> String {
    format!("[job]\ncommand = {command}\n[knobs]\n{knobs}\n")
}

#[test]
fn options_follow_the_style_of_the_command() {
    let knobs = "image_size = 32\ncompile = true\nfast = false";
    let style =
        |command: &str, expected: &str| check(&with(command, knobs), None, "", None, expected);
    style(r#"["t"]"#, "t --image-size 32 --compile");
    style(
        r#"["t", "--out_dir", "x"]"#,
        "t --out_dir x --image_size 32 --compile",
    );
    style(
        r#"["t", "--out_dir", "--a-b"]"#,
        "t --out_dir --a-b --image-size 32 --compile",
    );
    style(
        r#"["t", "--out-dir=a_b"]"#,
        "t --out-dir=a_b --image-size 32 --compile",
    );
}

#[test]
fn switches_and_parts() {
    let command = r#"["t", "{compile?--compile}", "{pin_memory?--pin|--no-pin}", "-w", "{workers}", "--p={prefetch}", "{{x}}"]"#;
    let text = with(
        command,
        "compile = [false, true]\npin_memory = \"auto\"\nworkers = \"auto\"\nprefetch = \"auto\"",
    );
    check(&text, None, "", None, "t {x}");
    check(
        &text,
        None,
        "compile=true pin_memory=false workers=1 prefetch=2",
        None,
        "t --compile --no-pin -w 1 --p=2 {x}",
    );
    // A DataLoader refuses to prefetch without workers.
    check(&text, None, "workers=0 prefetch=2", None, "t -w 0 {x}");
}

#[test]
fn a_place_after_a_word_that_is_no_option_goes_alone() {
    let text = with(r#"["t", "resume", "{workers}"]"#, "workers = \"auto\"");
    check(&text, None, "", None, "t resume");
    let text = with(
        r#"["t", "--seed", "-1", "{workers}"]"#,
        "workers = \"auto\"",
    );
    check(&text, None, "", None, "t --seed -1");
}

#[test]
fn the_allocator_goes_to_the_environment() {
    let text = with(
        r#"["t"]"#,
        "allocator = [\"\", \"expandable_segments:True\"]",
    );
    let job = job(
        &text,
        None,
        &["allocator=expandable_segments:True,max_split_size_mb:64"],
    );
    let rendered = job.render(&settings(""), None);
    assert_eq!(rendered.command, ["t"]);
    assert_eq!(
        rendered.variables,
        [(
            "PYTORCH_CUDA_ALLOC_CONF".to_owned(),
            "expandable_segments:True,max_split_size_mb:64".to_owned()
        )]
    );
}

#[test]
fn modes_and_overrides_stand_above_the_file() {
    let text = format!(
        "{SKETCH}workers = 0\neffective_batch = 8\nprefetch = 4\nextra = [\"--tag\", \"w{{workers}}\"]\nsacrifice = []\n"
    );
    check(
        &text,
        Some("debug"),
        "",
        None,
        "python train.py --workers 0 --resolution 32 --model full --max-steps 20 --tag w0",
    );
    let job = job(
        &text,
        Some("debug"),
        &[
            "workers=2",
            "resolution=24,16",
            "effective_batch=64",
            "max_steps=3",
            "sacrifice=resolution",
        ],
    );
    assert_eq!(job.effective_batch, Some(64));
    assert_eq!(job.values["max_steps"], Value::Whole(3));
    assert_eq!(job.sacrifice, ["resolution"]);
    assert_eq!(
        job.knob("resolution"),
        Some(&Knob {
            name: "resolution".into(),
            choices: Choices::Listed(whole(&[24, 16]))
        })
    );
    assert_eq!(
        job.render(&settings(""), None).command.join(" "),
        "python train.py --workers 2 --resolution 24 --model full --prefetch 4 --max-steps 3 --tag w2"
    );
}

proptest! {
    #[test]
    fn the_effective_batch_is_kept_by_every_micro_batch(effective in 1u64..100_000, world in 1u64..9) {
        let job = job(SKETCH, None, &[&format!("effective_batch={effective}")]);
        let batches = job.micro_batches(world);
        prop_assert!(batches.is_sorted_by(|a, b| a > b));
        prop_assert_eq!(batches.is_empty(), effective % world != 0);
        for batch in batches {
            prop_assert_eq!(effective % (batch * world), 0);
            if world == 1 {
                let all = job.all_values(&settings(&format!("micro_batch={batch}")));
                prop_assert_eq!(all.count(knobs::ACCUMULATION).unwrap() * batch, effective);
            }
        }
    }
}

const WITH_CONFIG: &str = r#"
[job]
command = ["python", "train.py", "--config=c/train.yaml", "c/train.yaml", "train.yaml", "{{x}}"]
resume = ["--resume", "{checkpoint}"]
[keep]
effective_batch = 32
[knobs]
micro_batch = "auto"
workers = [4, 0]
bf16 = [false, true]
width = [0.5, 0.25]
[config."c/train.yaml"]
"training.batch_size" = "{micro_batch}"
"training.accumulate" = "{accumulation}"
"data.workers" = "{workers}"
"trainer.precision" = "{bf16?bf16-mixed|32-true}"
"model.width" = "{width}"
"trainer.max_steps" = "{max_steps}"
"trainer.resume" = "{checkpoint}"
"trainer.logger" = false
[modes.debug]
max_steps = 20
"#;

#[test]
fn values_go_into_config_files_with_their_types() {
    let rendered = job(WITH_CONFIG, None, &[]).render(&settings("micro_batch=8 workers=2"), None);
    assert_eq!(
        rendered.command.join(" "),
        "python train.py --config=c/train.yaml c/train.yaml train.yaml {x}"
    );
    let [file] = rendered.config.as_slice() else {
        panic!("{:?}", rendered.config);
    };
    assert_eq!(file.path, "c/train.yaml");
    let entry = |key: &str, value: Value| (key.to_owned(), value);
    let expected = [
        entry("training.batch_size", Value::Whole(8)),
        entry("training.accumulate", Value::Whole(4)),
        entry("data.workers", Value::Whole(2)),
        entry("trainer.precision", "32-true".into()),
        entry("model.width", Value::Number(0.5)),
        entry("trainer.logger", false.into()),
    ];
    assert_eq!(file.entries, expected);
    let copies = [("c/train.yaml".to_owned(), "/tmp/1/train.yaml".to_owned())];
    assert_eq!(
        rendered.command_with(&copies).join(" "),
        "python train.py --config=/tmp/1/train.yaml /tmp/1/train.yaml train.yaml {x}"
    );
    let rendered = job(WITH_CONFIG, Some("debug"), &[]).render(&settings(""), Some("a.pt"));
    let entries = &rendered.config[0].entries;
    assert!(entries.contains(&entry("trainer.max_steps", Value::Whole(20))));
    assert!(entries.contains(&entry("trainer.resume", "a.pt".into())));
    assert!(!entries.iter().any(|(key, _)| key == "training.batch_size"));
}
