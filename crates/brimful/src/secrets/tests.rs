//! What is masked, and what only looks similar.

use proptest::prelude::*;

use super::*;

fn command(line: &str) -> String {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    mask_command(&words).join(" ")
}

/// `<SECRET>` in a line is masked in its command and in a text that quotes it.
fn check_command(line: &str, secret: &str) {
    let line = line.replace("<SECRET>", secret);
    let expected = line.replace(secret, MASK);
    assert_eq!(command(&line), expected);
    assert!(!mask_text(&line).contains(secret), "{line}");
}

fn check_text(text: &str, expected: &str) {
    assert_eq!(mask_text(text), expected);
    assert_eq!(
        mask_text(expected),
        expected,
        "masking twice changes nothing"
    );
}

fn check_untouched(text: &str) {
    assert_eq!(mask_text(text), text);
    assert_eq!(command(text), text);
}

/// Put together here, so that no scanner takes the source for a leak.
fn joined(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn values_of_options_and_variables_named_like_secrets_are_masked() {
    for line in [
        "python train.py --hf-token <SECRET> --epochs 3",
        "python train.py --hf_token=<SECRET>",
        "python train.py --wandb-key <SECRET>",
        "python train.py --api-key <SECRET> --lr 0.1",
        "python train.py --apikey=<SECRET>",
        "python train.py logger.wandb.api_key=<SECRET>",
        "python train.py +logger.apiKey=<SECRET>",
        "env HF_TOKEN=<SECRET> python train.py",
        "env AWS_SECRET_ACCESS_KEY=<SECRET> python train.py",
        "python train.py --password <SECRET>",
        "python train.py --db-passwd=<SECRET>",
        "python train.py --credentials <SECRET>",
        "python train.py --basic-auth <SECRET>",
        "python train.py -token <SECRET>",
    ] {
        check_command(line, "Xy7-hunter2-opaque9");
    }
    assert_eq!(command("run --password 1234"), "run --password ***");
    assert_eq!(command("run --token abc"), "run --token ***");
    assert_eq!(mask_variable("WANDB_API_KEY", "x"), MASK);
    assert_eq!(mask_variable("PATH", "/usr/bin:/bin"), "/usr/bin:/bin");
}

#[test]
fn options_that_only_look_similar_are_left_alone() {
    for line in [
        "python train.py --tokenizer gpt2 --max-tokens 512 --key-dim 64",
        "python train.py --keypoints 17 --num-key-value-heads 8",
        "python train.py --pad-token <pad> --eos_token </s> --sort-key length",
        "python train.py --image-key jpg --target_key=label",
        "python train.py --use-auth-token --hf-token",
        "python train.py --token --epochs 3",
        "python train.py --token-file /run/secrets/token",
        "python train.py --author me --authors us",
        "python train.py --key 64 --use_auth=true --api-key None",
        "python train.py --hf-token $HF_TOKEN",
        "python -m torch.distributed.run --nproc-per-node 8 train.py monkey=1 turkey=2",
        "env PWD=/home/me OLD_PWD=/tmp SSH_AUTH_SOCK=/tmp/x TOKENIZERS_PARALLELISM=false python x.py",
        "python train.py --data s3://bucket/key=1/part-0.parquet",
    ] {
        check_untouched(line);
    }
}

#[test]
fn tokens_are_known_by_their_form() {
    let digits = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    for prefix in [
        "hf_",
        "ghp_",
        "github_pat_",
        "glpat-",
        "sk-",
        "sk-ant-api03-",
        "xoxb-",
        "AIza",
        "nvapi-",
    ] {
        let token = joined(&[prefix, digits]);
        for text in [
            format!("login with {token} failed"),
            format!("https://x.org/?a={token}"),
            format!("(\"{token}\")"),
        ] {
            check_text(&text, &text.replace(&token, MASK));
        }
    }
    let id = joined(&["AKIA", "IOSFODNN7EXAMPLE"]);
    check_text(&format!("id {id}."), "id ***.");
    let web = joined(&[
        "eyJhbGciOiJIUzI1NiJ9",
        ".",
        "eyJzdWIiOiIxMjM0In0",
        ".",
        "abc-def_123",
    ]);
    check_text(&format!("cookie: {web}; path"), "cookie: ***; path");
    check_text(
        &format!("-H 'Authorization: Bearer {digits}' url"),
        "-H 'Authorization: Bearer ***' url",
    );
    check_text(&format!("sent Bearer {digits}"), "sent ***");
    let key = "0123456789abcdef0123456789abcdef01234567";
    check_text(&format!("wandb: API key {key}"), "wandb: API key ***");
    assert_eq!(command(&format!("wandb login {key}")), "wandb login ***");
}

#[test]
fn hashes_paths_and_identifiers_are_no_tokens() {
    for text in [
        "commit 0123456789abcdef0123456789abcdef01234567",
        "/home/me/.cache/huggingface/hub/models--gpt2/snapshots/607a30d783dfa663caf39e06633721c8d4cfcd7e/model.safetensors",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "hf_transformers_training_arguments hf_hub_download(repo_id)",
        "sk-learn is not scikit-learn; task-specific-configuration-of-a-run-1",
        "ASIA AKIA eyJ hf_ ghp_short sk-",
        "ssh://git@github.com/org/repo.git https://github.com/a/b@v1",
        "me@example.org wrote: see a://b",
    ] {
        check_untouched(text);
    }
}

#[test]
fn tracebacks_stay_as_they_are() {
    let text = "Traceback (most recent call last):
  File \"/home/me/train.py\", line 12, in <module>
    rows = sorted(rows, key=lambda row: row[0])
    api = HfApi(token=os.environ[\"HF_TOKEN\"])
    token = tokenizer.decode(ids)
    login(token=token, key=key, password=None)
KeyError: 'encoder.layer.0.attention.self.key.weight'
RuntimeError: Error(s) in loading state_dict for Net:
\tMissing key(s) in state_dict: \"head.weight\".
\tsize mismatch for key: copying a param with shape torch.Size([2, 3])
\tunexpected token: model.layers.0
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.56 GiB
RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly
tokens: 512 | n_tokens=1024 tokens_per_second=3.5 key_dim=64 keys: [1, 2]
";
    assert_eq!(mask_text(text), text);
}

#[test]
fn assignments_in_output_are_masked() {
    check_text("password: hunter2\nnext", "password: ***\nnext");
    check_text("{'api_key': 'a b', 'lr': 1}", "{'api_key': '***', 'lr': 1}");
    check_text(
        "client(api_key=\"abc\", lr=1)",
        "client(api_key=\"***\", lr=1)",
    );
    check_text("export DB_PASSWORD=p;ls", "export DB_PASSWORD=***;ls");
    check_text("Your API key: abc", "Your API key: ***");
    check_text("token=abcdefgh12345678 ok", "token=*** ok");
    check_text(
        "sh -c 'run --hf-token abc --x 1'",
        "sh -c 'run --hf-token *** --x 1'",
    );
    check_text(
        "usage: run [--hf-token HF_TOKEN] [--x X]",
        "usage: run [--hf-token HF_TOKEN] [--x X]",
    );
    check_text(
        "GET https://s.example/o?X-Amz-Credential=a%2Fb&X-Amz-Signature=abc&n=1",
        "GET https://s.example/o?X-Amz-Credential=***&X-Amz-Signature=***&n=1",
    );
}

#[test]
fn user_information_of_urls_is_masked() {
    check_text(
        "pip install git+https://me:pw@host.example/x.git",
        "pip install git+https://***@host.example/x.git",
    );
    check_text(
        "mysql://root:a@b@db:3306/x?y=1",
        "mysql://***@db:3306/x?y=1",
    );
    check_text("https://tok@github.com", "https://***@github.com");
}

#[test]
fn private_keys_are_masked_to_their_end() {
    let (begin, end) = (
        joined(&["-----BEGIN RSA ", "PRIVATE KEY-----"]),
        joined(&["-----END RSA ", "PRIVATE KEY-----"]),
    );
    check_text(
        &format!("a\n{begin}\nMIIE\nabcd\n{end}\nb"),
        &format!("a\n{begin}***{end}\nb"),
    );
    check_text(&format!("{begin}\nMIIE"), &format!("{begin}***"));
    check_text(&format!("abcd\nefgh==\n{end}\nb"), &format!("***{end}\nb"));
    check_untouched("-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----");
}

#[test]
fn texts_that_are_made_to_be_slow_are_not() {
    for part in [
        "token=",
        "://a",
        "-----BEGIN ",
        "key ",
        "'",
        "a1b2c3d4e5f6a7b8c9d0a1b2c3d4e5f6a7b8c9d0 wandb key ",
    ] {
        let text = part.repeat((16 << 10) / part.len());
        assert!(mask_text(&text).len() <= text.len() + MASK.len());
    }
}

proptest! {
    #[test]
    fn any_text_is_masked_without_a_panic_and_once(text in "\\PC{0,200}") {
        let masked = mask_text(&text);
        prop_assert_eq!(mask_text(&masked), masked);
    }

    #[test]
    fn near_misses_are_masked_without_a_panic(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "--", "token", "key", "api", "=", ":", " ", "\"", "'", "://", "@", "hf_", "eyJ", ".", "é", "Bearer ",
                "a1b2c3d4e5f6a7b8c9d0e1f2a3b4", "-----BEGIN ", "PRIVATE KEY-----", "\n", "password", "***", "&", "?sig",
            ]),
            0..25,
        )
    ) {
        let text = parts.concat();
        let _ = mask_text(&text);
        let _ = mask_command(&parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        let _ = mask_variable("x", &text);
    }
}
