//! Requests to schedulers: whole files, with the reason beside each value.

use std::fmt::Write;

use brimful::job::forms::quoted;
use brimful::plan::ResourceRequest;
use brimful::printable::is_printable;
use brimful::units::Bytes;
use serde_json::Value;

use crate::text::page::wrap;

/// A scheduler that takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// A batch script for `sbatch`.
    Slurm,
    /// A manifest of a Job.
    Kubernetes,
    /// A `ray job submit` command.
    Ray,
    /// A task file for `sky launch`.
    SkyPilot,
}

/// What a request starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedJob {
    pub name: String,
    /// The planned settings, in one line.
    pub settings: String,
    pub command: Vec<String>,
}

/// A name that schedulers take: lower-case letters, digits and dashes.
const MAX_NAME: usize = 52;
/// Characters of a comment on a line of its own.
const NOTE_WIDTH: usize = 76;
/// Where the nodes of a job meet, on the first of them: torchrun's own default.
const RENDEZVOUS_PORT: u16 = 29400;
/// Memory of a whole machine that its system needs.
const SYSTEM: Bytes = Bytes::from_gib(2);

/// The file or command for a scheduler, with a final newline.
pub fn request(scheduler: Scheduler, request: &ResourceRequest, job: &RequestedJob) -> String {
    match scheduler {
        Scheduler::Slurm => slurm(request, job),
        Scheduler::Kubernetes => kubernetes(request, job),
        Scheduler::Ray => ray(request, job),
        Scheduler::SkyPilot => skypilot(request, job),
    }
}

fn slurm(request: &ResourceRequest, job: &RequestedJob) -> String {
    let mut text = String::from("#!/bin/bash\n");
    note(&mut text, "", &planned_for(job));
    line(
        &mut text,
        "",
        &format!("#SBATCH --job-name={}", name(job)),
        None,
    );
    let nodes = format!("#SBATCH --nodes={}", request.nodes);
    line(&mut text, "", &nodes, None);
    let starts_ranks = request.ranks > 1 || request.nodes > 1;
    let one_task = starts_ranks.then_some("the command starts the ranks");
    let tasks = match request.nodes {
        1 => "#SBATCH --ntasks=1",
        _ => "#SBATCH --ntasks-per-node=1",
    };
    line(&mut text, "", tasks, one_task);
    let cpus = format!("#SBATCH --cpus-per-task={}", request.cpus);
    line(&mut text, "", &cpus, Some(&reason_of_cpus(request)));
    let memory = format!("#SBATCH --mem={}M", mebibytes(request.memory));
    line(&mut text, "", &memory, Some(&reason_of_memory(request)));
    if let Some(gpu) = &request.gpu {
        let count = format!("#SBATCH --gpus-per-node={}", gpu.count);
        line(&mut text, "", &count, Some(&reason_of_gpus(request)));
        let model = format!(
            "To request this model, name it as your cluster does: --gpus-per-node=NAME:{}. `sinfo -o %G` lists the names.",
            gpu.count
        );
        note(&mut text, "", &model);
    }
    if let Some(shm) = request.shm {
        let advice = format!(
            "/dev/shm must have {shm}. Slurm has no request for it; `df -h /dev/shm` on a node shows its size."
        );
        note(&mut text, "", &advice);
    }
    note(
        &mut text,
        "",
        "If everything in the step is killed at once, submit the script again: brimful reports what happened. Add \
         --resume to continue from the newest checkpoint.",
    );
    text.push('\n');
    if request.nodes > 1 {
        note(
            &mut text,
            "",
            "torchrun reads these where its command has no such option. The checkpoints must be in a directory that all \
             nodes share.",
        );
        let _ = writeln!(
            text,
            "export PET_RDZV_BACKEND=c10d PET_RDZV_ID=\"$SLURM_JOB_ID\"\n\
             PET_RDZV_ENDPOINT=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1):{RENDEZVOUS_PORT}\"\n\
             export PET_RDZV_ENDPOINT\n"
        );
    }
    // Since Slurm 22.05, srun takes the number of CPUs from its own option only.
    let _ = writeln!(
        text,
        "srun --cpus-per-task={} {}",
        request.cpus,
        command(job)
    );
    text
}

fn kubernetes(request: &ResourceRequest, job: &RequestedJob) -> String {
    let mut text = String::new();
    let several = (request.nodes > 1).then(|| name(job));
    if let Some(name) = &several {
        kubernetes_service(&mut text, name);
    }
    note(&mut text, "", &planned_for(job));
    text.push_str("apiVersion: batch/v1\nkind: Job\nmetadata:\n");
    let _ = writeln!(text, "  name: {}", scalar(&name(job)));
    text.push_str("spec:\n");
    if several.is_some() {
        let nodes = request.nodes;
        let _ = writeln!(
            text,
            "  completionMode: Indexed\n  completions: {nodes}\n  parallelism: {nodes}"
        );
    }
    note(
        &mut text,
        "  ",
        "A pod that was killed is not replaced. Raise backoffLimit only with checkpoints and BRIMFUL_STATE_DIR on a \
         volume and --resume in the command: otherwise the next pod starts from the beginning.",
    );
    text.push_str("  backoffLimit: 0\n");
    text.push_str("  template:\n    spec:\n      restartPolicy: Never\n");
    if let Some(name) = &several {
        let _ = writeln!(text, "      subdomain: {}", scalar(name));
    }
    if let Some(gpu) = &request.gpu {
        let product = scalar(&gpu.name.replace(' ', "-"));
        line(
            &mut text,
            "      ",
            &format!("# nodeSelector: {{\"nvidia.com/gpu.product\": {product}}}"),
            Some("to request this model"),
        );
    }
    text.push_str("      containers:\n");
    text.push_str("        - name: train\n");
    let image = "replace it: an image with brimful and your script, and the job file in its working directory";
    line(
        &mut text,
        "          ",
        "image: \"python:3.12\"",
        Some(image),
    );
    let words: Vec<String> = job.command.iter().map(|word| scalar(word)).collect();
    let _ = writeln!(text, "          command: [{}]", words.join(", "));
    if let Some(name) = &several {
        kubernetes_rendezvous(&mut text, name);
    }
    kubernetes_resources(&mut text, request);
    let end = "`kubectl describe pod` shows brimful's verdict, or the end of the log";
    line(
        &mut text,
        "          ",
        "terminationMessagePolicy: FallbackToLogsOnError",
        Some(end),
    );
    if let Some(shm) = request.shm {
        text.push_str(
            "          volumeMounts:\n            - name: shm\n              mountPath: /dev/shm\n",
        );
        text.push_str("      volumes:\n        - name: shm\n          emptyDir:\n            medium: Memory\n");
        let size = format!("sizeLimit: \"{}Mi\"", mebibytes(shm));
        line(
            &mut text,
            "            ",
            &size,
            Some(&reason_of_shm(request)),
        );
    }
    note(
        &mut text,
        "",
        "memory.oom.group: since Kubernetes 1.28, one process above the limit ends the whole container, and brimful with \
         it. With singleProcessOOMKill: true in the kubelet's configuration (1.32 and later) only that process dies, \
         and brimful can continue in the same container.",
    );
    text
}

/// Names of pods in the cluster's DNS.
fn kubernetes_service(text: &mut String, name: &str) {
    note(
        text,
        "",
        "Gives the pods names by which torchrun finds the first one.",
    );
    let _ = writeln!(
        text,
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {0}\nspec:\n  clusterIP: None\n  \
         publishNotReadyAddresses: true\n  selector:\n    job-name: {0}\n---",
        scalar(name)
    );
}

/// Where torchrun finds the other pods.
fn kubernetes_rendezvous(text: &mut String, name: &str) {
    note(
        text,
        "          ",
        "torchrun reads these where its command has no such option. The checkpoints must be on a volume that all \
         pods share.",
    );
    text.push_str("          env:\n");
    let endpoint = format!("{name}-0.{name}:{RENDEZVOUS_PORT}");
    for (variable, value) in [
        ("PET_RDZV_BACKEND", "c10d"),
        ("PET_RDZV_ID", name),
        ("PET_RDZV_ENDPOINT", &endpoint),
    ] {
        let _ = writeln!(
            text,
            "            - name: {variable}\n              value: {}",
            scalar(value)
        );
    }
}

fn kubernetes_resources(text: &mut String, request: &ResourceRequest) {
    text.push_str("          resources:\n");
    // Equal requests and limits: such pods are evicted last.
    for (kind, is_first) in [("requests", true), ("limits", false)] {
        let _ = writeln!(text, "            {kind}:");
        let because = |reason: String| is_first.then_some(reason);
        let indent = "              ";
        let cpus = format!("cpu: \"{}\"", request.cpus);
        line(
            text,
            indent,
            &cpus,
            because(reason_of_cpus(request)).as_deref(),
        );
        let memory = format!("memory: \"{}Mi\"", mebibytes(request.memory));
        line(
            text,
            indent,
            &memory,
            because(reason_of_memory(request)).as_deref(),
        );
        if let Some(gpu) = &request.gpu {
            let count = format!("nvidia.com/gpu: \"{}\"", gpu.count);
            line(
                text,
                indent,
                &count,
                because(reason_of_gpus(request)).as_deref(),
            );
        }
    }
}

fn ray(request: &ResourceRequest, job: &RequestedJob) -> String {
    let mut text = String::new();
    note(&mut text, "", &planned_for(job));
    note(
        &mut text,
        "",
        &format!("CPUs, {}: {}", request.cpus, reason_of_cpus(request)),
    );
    let memory = format!("memory, {}: {}", request.memory, reason_of_memory(request));
    note(&mut text, "", &memory);
    if let Some(gpu) = &request.gpu {
        let gpus = format!("GPUs, {}: {}", gpu.count, reason_of_gpus(request));
        note(&mut text, "", &gpus);
    }
    if request.nodes > 1 {
        let advice = format!(
            "The job has {} nodes, and `ray job submit` starts a command on one: start it once for each, or use another \
             scheduler.",
            request.nodes
        );
        note(&mut text, "", &advice);
    }
    note(
        &mut text,
        "",
        "Ray reserves these amounts, but does not enforce them: the limit is that of the node or its container. brimful \
         must be installed there.",
    );
    let _ = write!(
        text,
        "ray job submit --working-dir . --entrypoint-num-cpus {} --entrypoint-memory {}",
        request.cpus,
        request.memory.get()
    );
    if let Some(gpu) = &request.gpu {
        let _ = write!(text, " --entrypoint-num-gpus {}", gpu.count);
    }
    let _ = writeln!(text, " -- {}", command(job));
    text
}

fn skypilot(request: &ResourceRequest, job: &RequestedJob) -> String {
    let mut text = String::new();
    note(&mut text, "", &planned_for(job));
    let _ = writeln!(text, "name: {}", scalar(&name(job)));
    text.push_str("workdir: .\n");
    if request.nodes > 1 {
        let _ = writeln!(text, "num_nodes: {}", request.nodes);
    }
    text.push_str("resources:\n");
    if let Some(gpu) = &request.gpu {
        let reason = reason_of_gpus(request);
        match skypilot_name(gpu.id) {
            Some(known) => {
                let value = format!("accelerators: \"{known}:{}\"", gpu.count);
                line(&mut text, "  ", &value, Some(&reason));
            }
            None => note(
                &mut text,
                "  ",
                &format!(
                    "accelerators: the name in `sky show-gpus -a` and the count, such as \"T4:{}\"; {reason}",
                    gpu.count
                ),
            ),
        }
    }
    let cpus = format!("cpus: \"{}+\"", request.cpus);
    line(&mut text, "  ", &cpus, Some(&reason_of_cpus(request)));
    let all = request.memory.get().saturating_add(SYSTEM.get());
    let memory = format!("memory: \"{}+\"", all.div_ceil(Bytes::GIB));
    let reason = format!(
        "in GiB: {}, and {SYSTEM} for the system",
        reason_of_memory(request)
    );
    line(&mut text, "  ", &memory, Some(&reason));
    if let Some(shm) = request.shm {
        let advice = format!(
            "/dev/shm must have {shm}; on most virtual machines it has half of the memory."
        );
        note(&mut text, "  ", &advice);
    }
    line(
        &mut text,
        "",
        "setup: \"pip install brimful\"",
        Some("and what your script needs"),
    );
    let meet = if request.nodes > 1 {
        format!(
            "export PET_RDZV_BACKEND=c10d PET_RDZV_ID=$SKYPILOT_TASK_ID \
             PET_RDZV_ENDPOINT=$(echo \"$SKYPILOT_NODE_IPS\" | head -n1):{RENDEZVOUS_PORT}; "
        )
    } else {
        String::new()
    };
    let _ = writeln!(text, "run: {}", scalar(&format!("{meet}{}", command(job))));
    text
}

/// Names of `sky show-gpus -a`.
fn skypilot_name(id: &str) -> Option<&'static str> {
    Some(match id {
        "t4" => "T4",
        "l4" => "L4",
        "l40s" => "L40S",
        "a10" => "A10",
        "a10g" => "A10G",
        "a40" => "A40",
        "p100-16gb" => "P100",
        "v100-sxm2-16gb" => "V100",
        "v100-sxm2-32gb" => "V100-32GB",
        "a100-40gb" | "a100-pcie-40gb" => "A100",
        "a100-80gb" | "a100-pcie-80gb" => "A100-80GB",
        "h100-80gb" | "h100-pcie-80gb" => "H100",
        "h200" => "H200",
        _ => return None,
    })
}

fn planned_for(job: &RequestedJob) -> String {
    let settings = match job.settings.as_str() {
        "" => String::new(),
        settings => format!(" for the settings {settings}"),
    };
    format!("Written by `brimful plan`{settings}. 95% of runs stay below the safe values.")
}

fn reason_of_memory(request: &ResourceRequest) -> String {
    let safe = request.memory_safe;
    let shm = match request.shm_safe {
        Bytes(0) => String::new(),
        shm => format!(", {shm} of it in /dev/shm"),
    };
    format!("safe value {safe}{shm}; the rest for the shell and brimful")
}

fn reason_of_cpus(request: &ResourceRequest) -> String {
    let (ranks, workers) = (request.ranks, request.workers);
    if request.gpu.is_none() {
        return "all that the plan was made for: the model runs on them".to_owned();
    }
    let of_ranks = match ranks {
        1 => "the training process".to_owned(),
        _ => format!("{ranks} ranks"),
    };
    let each = if ranks > 1 { " each" } else { "" };
    match workers {
        0 => format!("{of_ranks}, without worker processes"),
        1 => format!("{of_ranks} and 1 DataLoader worker{each}"),
        _ => format!("{of_ranks} and {workers} DataLoader workers{each}"),
    }
}

fn reason_of_gpus(request: &ResourceRequest) -> String {
    let Some(gpu) = &request.gpu else {
        return String::new();
    };
    match gpu.safe {
        Some(safe) if gpu.count > 1 => format!("{} each; safe value {safe}", gpu.name),
        Some(safe) => format!("{}; safe value {safe}", gpu.name),
        None => gpu.name.to_owned(),
    }
}

fn reason_of_shm(request: &ResourceRequest) -> String {
    let safe = request.shm_safe;
    let ranks = if request.ranks > 1 && request.gpu.is_some() {
        ", at least 1 GiB for NCCL"
    } else {
        ""
    };
    format!("safe value {safe}{ranks}; counts as memory of the container")
}

fn command(job: &RequestedJob) -> String {
    let words: Vec<String> = job.command.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn mebibytes(bytes: Bytes) -> u64 {
    bytes.get().div_ceil(Bytes::MIB)
}

/// A string that JSON and YAML read alike.
fn scalar(text: &str) -> String {
    Value::from(text).to_string()
}

/// A line, and a reason behind it.
fn line(text: &mut String, indent: &str, content: &str, reason: Option<&str>) {
    let _ = match reason {
        Some(reason) => writeln!(text, "{indent}{content}  # {}", plain(reason)),
        None => writeln!(text, "{indent}{content}"),
    };
}

/// Lines of their own that schedulers ignore.
fn note(text: &mut String, indent: &str, content: &str) {
    for part in wrap(&plain(content), NOTE_WIDTH) {
        let _ = writeln!(text, "{indent}# {part}");
    }
}

/// Without characters that end a line: the rest would be read as a request.
fn plain(content: &str) -> String {
    let shown = content.chars();
    shown
        .map(|c| if is_printable(c) { c } else { ' ' })
        .collect()
}

fn name(job: &RequestedJob) -> String {
    let mut name = String::new();
    for c in job.name.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.len() == MAX_NAME {
            break;
        }
    }
    let name = name.trim_end_matches('-');
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        format!("train-{name}").trim_end_matches('-').to_owned()
    }
}
