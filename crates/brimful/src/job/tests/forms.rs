//! The forms that others take.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::job::forms::{Form, dataloader, quoted, training_arguments};
use crate::job::tests::{SKETCH, job, settings};
use crate::job::{Settings, Value, knobs, read};

fn written(form: Form, overrides: &[&str], words: &str, has_gpu: bool) -> String {
    form.write(&job(SKETCH, None, overrides), &settings(words), has_gpu)
}

const CHOSEN: &str =
    "micro_batch=32 workers=2 activation_checkpointing=true resolution=24 model=full";

#[test]
fn arguments_and_variables() {
    assert_eq!(
        written(
            Form::Args,
            &["allocator=expandable_segments:True"],
            &format!("{CHOSEN} model=a'b"),
            true
        ),
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py --batch-size 32 --accumulate 4 --workers 2 \
         --activation-checkpointing --resolution 24 --model 'a'\\''b'\n"
    );
    assert_eq!(
        written(
            Form::Env,
            &["allocator=expandable_segments:True"],
            CHOSEN,
            true
        ),
        "BRIMFUL_ACCUMULATION=4\nBRIMFUL_ACTIVATION_CHECKPOINTING=true\n\
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nBRIMFUL_EFFECTIVE_BATCH=128\nBRIMFUL_MICRO_BATCH=32\n\
         BRIMFUL_MODEL=full\nBRIMFUL_RESOLUTION=24\nBRIMFUL_WORKERS=2\n"
    );
}

#[test]
fn names_of_frameworks() {
    let json = |form, words: &str| -> Json {
        serde_json::from_str(&written(form, &[], &format!("{CHOSEN} {words}"), true)).unwrap()
    };
    assert_eq!(
        json(
            Form::Hf,
            "prefetch=4 pin_memory=true persistent_workers=true eval_batch=8 compile=false precision=bf16"
        ),
        json!({
            "per_device_train_batch_size": 32,
            "per_device_eval_batch_size": 8,
            "gradient_accumulation_steps": 4,
            "gradient_checkpointing": true,
            "torch_compile": false,
            "bf16": true,
            "fp16": false,
            "dataloader_num_workers": 2,
            "dataloader_prefetch_factor": 4,
            "dataloader_persistent_workers": true,
            "dataloader_pin_memory": true,
        })
    );
    assert_eq!(
        json(Form::Lightning, "precision=fp16 prefetch=4"),
        json!({
            "trainer": {"accumulate_grad_batches": 4, "precision": "16-mixed"},
            "dataloader": {"batch_size": 32, "num_workers": 2, "prefetch_factor": 4},
        })
    );
    assert_eq!(json(Form::Json, "")["resolution"], 24);
}

#[test]
fn a_job_file_of_single_values_is_read_again() {
    let toml = written(Form::Toml, &[], CHOSEN, true);
    assert_eq!(
        toml,
        "[keep]\neffective_batch = 128\n\n[knobs]\nactivation_checkpointing = true\nmicro_batch = 32\nmodel = \"full\"\n\
         resolution = 24\nworkers = 2\n# accumulation = 4 follows from effective_batch\n"
    );
    let head = SKETCH.split("[keep]").next().unwrap();
    let file = read(&format!("{head}{toml}")).unwrap();
    assert_eq!(
        file.job(None, &[])
            .unwrap()
            .all_values(&Settings::default())
            .count("workers"),
        Some(2)
    );
}

prop_compose! {
    fn any_settings()(
        workers in proptest::option::of(0i64..4),
        prefetch in proptest::option::of(1i64..5),
        persistent in proptest::option::of(any::<bool>()),
        pin in proptest::option::of(any::<bool>()),
        batch in proptest::option::of(1i64..64),
    ) -> Settings {
        let mut settings = Settings::default();
        let counts = [(knobs::WORKERS, workers), (knobs::PREFETCH, prefetch), (knobs::MICRO_BATCH, batch)];
        for (knob, count) in counts {
            if let Some(count) = count {
                settings.set(knob, Value::Whole(count));
            }
        }
        for (knob, flag) in [(knobs::PERSISTENT_WORKERS, persistent), (knobs::PIN_MEMORY, pin)] {
            if let Some(flag) = flag {
                settings.set(knob, flag);
            }
        }
        settings
    }
}

proptest! {
    /// As `torch.utils.data.DataLoader.__init__` checks them.
    #[test]
    fn a_dataloader_takes_every_combination(settings in any_settings(), has_gpu: bool) {
        let hf = training_arguments(&settings, has_gpu);
        for (keywords, prefix) in [(&dataloader(&settings, has_gpu), ""), (&hf, "dataloader_")] {
            let get = |name: &str| keywords.get(&format!("{prefix}{name}"));
            let workers = get("num_workers").and_then(Json::as_u64).unwrap_or(0);
            if workers == 0 {
                prop_assert!(get("prefetch_factor").is_none());
                prop_assert_ne!(get("persistent_workers"), Some(&Json::Bool(true)));
            }
            prop_assert_ne!(get("prefetch_factor").and_then(Json::as_u64), Some(0));
            if !has_gpu {
                prop_assert_ne!(get("pin_memory"), Some(&Json::Bool(true)));
            }
        }
    }

    #[test]
    fn every_form_of_every_settings_is_sound(settings in any_settings(), has_gpu: bool) {
        let job = job(SKETCH, None, &["prefetch=2", "persistent_workers=true", "pin_memory=true"]);
        for form in Form::ALL {
            let text = form.write(&job, &settings, has_gpu);
            prop_assert!(text.ends_with('\n'));
            let no_workers = settings.count(knobs::WORKERS) == Some(0);
            if no_workers {
                prop_assert!(!text.to_lowercase().contains("prefetch"), "{}", text);
            }
        }
    }

    #[test]
    fn a_quoted_word_is_one_word(word in "[ -~]{0,20}") {
        let quoted = quoted(&word);
        prop_assert_eq!(quoted.matches('\'').count() % 2, word.matches('\'').count() % 2);
        prop_assert!(!quoted.is_empty());
    }
}
