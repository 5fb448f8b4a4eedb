//! Requests to schedulers.

use brimful::plan::{RequestedGpu, ResourceRequest};
use brimful::units::Bytes;
use brimful_report::text::{RequestedJob, Scheduler, request};
use serde_json::Value;

fn on_gpus() -> ResourceRequest {
    ResourceRequest {
        nodes: 1,
        memory: Bytes::from_mib(10_496),
        memory_safe: Bytes::from_mib(10_000),
        shm: Some(Bytes::from_mib(1536)),
        shm_safe: Bytes::from_mib(1500),
        gpu: Some(RequestedGpu {
            id: "a100-40gb",
            name: "NVIDIA A100-SXM4-40GB",
            count: 2,
            safe: Some(Bytes::from_gib(31)),
        }),
        cpus: 10,
        ranks: 2,
        workers: 4,
    }
}

fn on_cpu() -> ResourceRequest {
    ResourceRequest {
        nodes: 1,
        memory: Bytes::from_gib(2),
        memory_safe: Bytes::from_mib(1700),
        shm: None,
        shm_safe: Bytes(0),
        gpu: None,
        cpus: 1,
        ranks: 1,
        workers: 0,
    }
}

fn job() -> RequestedJob {
    RequestedJob {
        name: "Train_v2".to_owned(),
        settings: "micro_batch 64, workers 4".to_owned(),
        command: ["brimful", "run", "--set", "note=it's"]
            .map(str::to_owned)
            .to_vec(),
    }
}

#[test]
fn slurm_gets_a_batch_script() {
    insta::assert_snapshot!(request(Scheduler::Slurm, &on_gpus(), &job()));
}

#[test]
fn kubernetes_gets_a_job() {
    insta::assert_snapshot!(request(Scheduler::Kubernetes, &on_gpus(), &job()));
}

#[test]
fn ray_gets_a_command() {
    insta::assert_snapshot!(request(Scheduler::Ray, &on_gpus(), &job()));
}

#[test]
fn skypilot_gets_a_task() {
    insta::assert_snapshot!(request(Scheduler::SkyPilot, &on_gpus(), &job()));
}

#[test]
fn slurm_gets_a_batch_script_for_several_nodes() {
    let request_of_3 = on_gpus().on_nodes(3);
    insta::assert_snapshot!(request(Scheduler::Slurm, &request_of_3, &job()));
}

#[test]
fn kubernetes_gets_an_indexed_job_for_several_nodes() {
    let request_of_3 = on_gpus().on_nodes(3);
    insta::assert_snapshot!(request(Scheduler::Kubernetes, &request_of_3, &job()));
}

#[test]
fn other_schedulers_are_told_the_number_of_nodes() {
    let request_of_3 = on_gpus().on_nodes(3);
    let task = request(Scheduler::SkyPilot, &request_of_3, &job());
    assert!(
        task.contains("num_nodes: 3\n") && task.contains("SKYPILOT_NODE_IPS"),
        "{task}"
    );
    let command = request(Scheduler::Ray, &request_of_3, &job());
    assert!(command.contains("# The job has 3 nodes"), "{command}");
}

#[test]
fn a_job_on_the_cpu_requests_no_gpu_and_no_shm() {
    for scheduler in ALL {
        let text = request(scheduler, &on_cpu(), &job());
        for absent in ["gpu", "accelerators", "shm"] {
            assert!(!text.contains(absent), "{scheduler:?}: {absent} in\n{text}");
        }
    }
}

const ALL: [Scheduler; 4] = [
    Scheduler::Slurm,
    Scheduler::Kubernetes,
    Scheduler::Ray,
    Scheduler::SkyPilot,
];

#[test]
fn a_hostile_job_adds_no_line_of_its_own() {
    let hostile = RequestedJob {
        name: "x\n#SBATCH --mem=1M\u{202e}: \"".to_owned(),
        settings: "a\n#SBATCH --mem=1M\r\nprivileged: true".to_owned(),
        command: vec!["brimful".to_owned(), "a\nb: \"c\" $(id)".to_owned()],
    };
    for scheduler in ALL {
        let text = request(scheduler, &on_cpu(), &hostile);
        let forbidden = |line: &&str| {
            let line = line.trim_start();
            line.starts_with("#SBATCH --mem=1M") || line.starts_with("privileged")
        };
        assert_eq!(text.lines().find(forbidden), None, "{text}");
    }
    let text = request(Scheduler::Kubernetes, &on_cpu(), &hostile);
    let words = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("command: "));
    let words: Vec<String> = serde_json::from_str::<Value>(words.unwrap())
        .and_then(serde_json::from_value)
        .unwrap();
    assert_eq!(words, hostile.command);
    assert!(text.contains("name: \"x-sbatch-mem-1m\""), "{text}");
}
