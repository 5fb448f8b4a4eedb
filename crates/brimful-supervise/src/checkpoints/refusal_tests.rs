//! What is refused although it is complete, what is chosen instead, and what a rehearsal may not change.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::choose::MAX_REFUSED;
use super::tests::{Entry, TestDir, torch, zip_of};
use super::*;

/// `torch.save({"step": step}, path)`, a step below 256.
fn at_step(step: u8) -> Vec<u8> {
    let pickle = [b"\x80\x02}X\x04\x00\x00\x00stepK", &[step][..], b"s."].concat();
    zip_of(&[Entry::plain("a/data.pkl", &pickle)], true)
}

fn find_with(place: &TestDir, pattern: &str, criteria: &Criteria<'_>) -> Checkpoints {
    choose(place.0.path(), &[pattern.to_owned()], criteria)
}

fn name(checkpoints: &Checkpoints) -> Option<String> {
    let path = &checkpoints.chosen.as_ref()?.path;
    Some(path.file_name()?.to_str()?.to_owned())
}

/// Makes a path another user's, and says which criteria then see it as such.
fn give_away(path: &Path) -> (Criteria<'static>, u32) {
    let criteria = Criteria::now();
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 64_321;
        std::os::unix::fs::lchown(path, Some(NOBODY), None).unwrap();
        return (criteria, NOBODY);
    }
    // Without the right to give files away, it is the criteria that are another user's.
    let uid = fs::symlink_metadata(path).unwrap().uid();
    let other = Criteria {
        uid: uid + 1,
        ..criteria
    };
    (other, uid)
}

fn set_time(path: &Path, time: SystemTime) {
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn the_step_inside_wins_over_the_modification_time() {
    let place = TestDir::new();
    place.put("out/a.pt", &at_step(40), 1);
    place.put("out/b.pt", &at_step(2), 9);
    let found = place.find("out/*.pt");
    assert_eq!(name(&found).as_deref(), Some("a.pt"));
    assert_eq!(found.chosen.unwrap().step, Some(40));
    assert_eq!(found.newer, Some((place.at("out/b.pt"), 2)));
    assert_eq!(found.refused, []);
    // The step of a Trainer is in its own file.
    for (step, minutes) in [(40, 1), (2, 9)] {
        let directory = format!("hf/checkpoint-{}", 100 - step);
        place.put(&format!("{directory}/model.pt"), &torch(), minutes);
        let state = format!(r#"{{"global_step": {step}}}"#);
        let path = format!("{directory}/trainer_state.json");
        place.put(&path, state.as_bytes(), minutes);
    }
    let (path, _, step) = place.chosen("hf/checkpoint-*").unwrap();
    assert_eq!((path.as_str(), step), ("hf/checkpoint-60", Some(40)));
    // A number in a name may be a date.
    place.put("c/checkpoint_20241115.pt", &torch(), 1);
    place.put("c/last.pt", &at_step(7), 2);
    assert_eq!(place.chosen("c/*").unwrap().0, "c/last.pt");
}

#[test]
fn a_checkpoint_of_another_user_is_refused() {
    let place = TestDir::new();
    place.put("mine.pt", &at_step(3), 1);
    place.put("theirs.pt", &at_step(9), 2);
    let (mut criteria, uid) = give_away(&place.at("theirs.pt"));
    let found = find_with(&place, "*.pt", &criteria);
    let why = Refusal::Owner { uid };
    assert!(
        found
            .refused
            .contains(&(place.at("theirs.pt"), why.clone()))
    );
    assert!(why.to_string().contains(&format!("uid {uid}")));
    if rustix::process::geteuid().is_root() {
        assert_eq!(name(&found).as_deref(), Some("mine.pt"));
    }
    criteria.force = true;
    let found = find_with(&place, "*.pt", &criteria);
    assert_eq!(name(&found).as_deref(), Some("theirs.pt"));
}

#[test]
fn one_file_of_another_user_in_a_directory_is_enough() {
    let place = TestDir::new();
    place.put("checkpoint-5/model.pt", &torch(), 1);
    place.put("checkpoint-5/trainer_state.json", b"{\"global_step\":5}", 1);
    place.put("checkpoint-5/deep/er/optimizer.pt", &torch(), 1);
    assert!(place.chosen("checkpoint-*").is_some());
    let (criteria, uid) = give_away(&place.at("checkpoint-5/deep/er/optimizer.pt"));
    let found = find_with(&place, "checkpoint-*", &criteria);
    assert_eq!(found.chosen, None);
    if rustix::process::geteuid().is_root() {
        assert_eq!(
            found.refused[0].1,
            Refusal::PartOwner {
                name: "deep/er/optimizer.pt".into(),
                uid
            }
        );
    }
}

#[test]
fn links_are_resolved_and_belong_to_this_user_with_what_they_lead_to() {
    let place = TestDir::new();
    place.put("step40.pt", &at_step(40), 1);
    symlink("step40.pt", place.at("last.pt")).unwrap();
    assert_eq!(
        place.chosen("last.pt"),
        Some(("last.pt".into(), CheckpointKind::TorchZip, Some(40)))
    );
    // Another user's link to a file of this user.
    let (criteria, uid) = give_away(&place.at("last.pt"));
    let refused = |pattern: &str, criteria: &Criteria<'_>| {
        let found = find_with(&place, pattern, criteria);
        assert_eq!(found.chosen, None);
        found.refused[0].1.clone()
    };
    assert_eq!(refused("last.pt", &criteria), Refusal::Owner { uid });
    // This user's link to a file of another.
    let (criteria, uid) = give_away(&place.at("step40.pt"));
    fs::remove_file(place.at("last.pt")).unwrap();
    symlink("step40.pt", place.at("last.pt")).unwrap();
    assert_eq!(refused("last.pt", &criteria), Refusal::Owner { uid });
}

#[test]
fn a_checkpoint_from_the_future_is_refused() {
    let place = TestDir::new();
    let now = SystemTime::now();
    place.put("now.pt", &torch(), 1);
    place.put("later.pt", &torch(), 1);
    set_time(&place.at("later.pt"), now + Duration::from_mins(4));
    assert_eq!(place.chosen("*.pt").unwrap().0, "later.pt");
    set_time(&place.at("later.pt"), now + Duration::from_mins(20));
    let found = place.find("*.pt");
    assert_eq!(name(&found).as_deref(), Some("now.pt"));
    assert!(matches!(
        found.refused[..],
        [(_, Refusal::FromTheFuture { .. })]
    ));
    let forced = find_with(&place, "*.pt", &Criteria::forced());
    assert_eq!(name(&forced).as_deref(), Some("later.pt"));
    for (hours, shown) in [(1, "60 minutes"), (5, "5 hours"), (300, "13 days")] {
        let ahead = Duration::from_hours(hours);
        let why = Refusal::FromTheFuture { ahead }.to_string();
        assert_eq!(
            why,
            format!("its modification time is {shown} in the future")
        );
    }
    // One file in a directory.
    place.put("checkpoint-5/model.pt", &torch(), 1);
    place.put("checkpoint-5/trainer_state.json", b"{}", 1);
    set_time(
        &place.at("checkpoint-5/model.pt"),
        now + Duration::from_hours(9),
    );
    assert!(place.refused("checkpoint-*").contains("in the future"));
}

#[test]
fn force_never_lifts_incompleteness() {
    let place = TestDir::new();
    place.put("a.pt", &torch()[..99], 1);
    let found = find_with(&place, "a.pt", &Criteria::forced());
    assert_eq!(found.chosen, None);
    assert!(matches!(found.refused[..], [(_, Refusal::Incomplete(_))]));
    assert!(!found.refused[0].1.is_lifted_by_force());
}

#[test]
fn many_of_another_user_do_not_crowd_out_those_of_this_one() {
    let place = TestDir::new();
    place.put("mine.pt", &at_step(3), 1);
    let now = SystemTime::now();
    for idx in 0..200 {
        let name = format!("{idx}.pt");
        place.put(&name, b"from the future", 1);
        set_time(&place.at(&name), now + Duration::from_hours(1));
    }
    let found = place.find("*.pt");
    assert_eq!(name(&found).as_deref(), Some("mine.pt"));
    assert_eq!(found.refused.len(), MAX_REFUSED);
}

#[test]
fn a_step_that_cannot_be_read_is_no_step() {
    let place = TestDir::new();
    let big = [
        b"\x80\x02}X\x04\x00\x00\x00stepK\x07sB\xff\xff\xff\x7f",
        &[0; 64][..],
    ]
    .concat();
    let packed = Entry {
        name: "a/data.pkl",
        data: b"\x80\x02}X\x04\x00\x00\x00stepK\x07s.",
        method: 8,
    };
    for bytes in [
        zip_of(&[Entry::plain("a/data.pkl", &big)], true),
        zip_of(&[Entry::plain("a/data.pkl", b"")], true),
        zip_of(&[packed], true),
    ] {
        place.put("a.pt", &bytes, 1);
        let (_, _, step) = place.chosen("a.pt").unwrap();
        assert_eq!(step, None);
    }
    // What may be read is used up.
    place.put("a.pt", &at_step(7), 1);
    let mut n_left = 30;
    assert_eq!(file::progress(&place.at("a.pt"), &mut n_left).step, Some(7));
    assert!(n_left < 30);
    assert_eq!(file::progress(&place.at("a.pt"), &mut 3).step, None);
    // A plain pickle has one too.
    place.put("b.pkl", b"\x80\x02}X\x04\x00\x00\x00stepK\x07s.", 1);
    assert_eq!(place.chosen("b.pkl").unwrap().2, Some(7));
}

#[test]
fn pipes_in_a_directory_do_not_hold_it_up() {
    let place = TestDir::new();
    for name in ["meta.pt", "latest", "trainer_state.json", ".metadata"] {
        place.put("a/model.pt", &torch(), 1);
        let path = place.at("a").join(name);
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let _ = place.find("a");
        fs::remove_file(path).unwrap();
    }
}

fn selector(place: &TestDir, resume: bool) -> Selector {
    let options = SelectorOptions {
        resume,
        force: false,
    };
    Selector::new(place.0.path(), &["*.pt".into()], options)
}

#[test]
fn what_a_rehearsal_writes_is_not_resumed_from() {
    let place = TestDir::new();
    place.put("last.pt", &at_step(40), 1);
    let mut selector = selector(&place, true);
    place.put("new.pt", &at_step(99), 9);
    selector.rehearsals_ended();
    assert_eq!(name(selector.first()).as_deref(), Some("last.pt"));
    let later = selector.later();
    assert_eq!(name(&later).as_deref(), Some("last.pt"));
    assert_eq!(
        later.refused,
        [(place.at("new.pt"), Refusal::WrittenDuringRehearsal)]
    );
    // An attempt writes over it.
    place.put("new.pt", &at_step(41), 10);
    assert_eq!(name(&selector.later()).as_deref(), Some("new.pt"));
}

#[test]
fn a_chosen_checkpoint_that_a_rehearsal_changed_is_given_up() {
    let place = TestDir::new();
    place.put("last.pt", &at_step(40), 5);
    place.put("older.pt", &at_step(30), 4);
    let mut first = selector(&place, true);
    place.put("last.pt", &at_step(2), 6);
    first.rehearsals_ended();
    assert_eq!(name(first.first()).as_deref(), Some("older.pt"));
    assert_eq!(
        first.first().refused,
        [(place.at("last.pt"), Refusal::WrittenDuringRehearsal)]
    );
    // With the length and the time of what was there.
    place.put("last.pt", &at_step(40), 7);
    let mut second = selector(&place, true);
    place.put("last.pt", &at_step(50), 7);
    second.rehearsals_ended();
    assert_eq!(name(second.first()).as_deref(), Some("older.pt"));
    place.put("last.pt", &at_step(51), 8);
    assert_eq!(second.later().chosen.unwrap().step, Some(51));
    // It is gone.
    let mut third = selector(&place, true);
    fs::remove_file(place.at("last.pt")).unwrap();
    third.rehearsals_ended();
    assert_eq!(name(third.first()).as_deref(), Some("older.pt"));
}

#[test]
fn a_chosen_checkpoint_that_was_put_back_is_kept() {
    let place = TestDir::new();
    place.put("last.pt", &at_step(40), 5);
    let mut with_times = selector(&place, true);
    fs::rename(place.at("last.pt"), place.at("aside")).unwrap();
    place.put("last.pt", &at_step(2), 6);
    fs::rename(place.at("aside"), place.at("last.pt")).unwrap();
    with_times.rehearsals_ended();
    assert_eq!(with_times.first().chosen.as_ref().unwrap().step, Some(40));
    let mut without_times = selector(&place, true);
    place.put("last.pt", &at_step(40), 8);
    without_times.rehearsals_ended();
    assert_eq!(
        without_times.first().chosen.as_ref().unwrap().step,
        Some(40)
    );
    assert_eq!(without_times.later().chosen.unwrap().step, Some(40));
}

#[test]
fn a_run_from_the_beginning_does_not_see_what_was_there() {
    let place = TestDir::new();
    place.put("yesterday.pt", &at_step(90), 5);
    let mut selector = selector(&place, false);
    place.put("rehearsed.pt", &at_step(91), 6);
    selector.rehearsals_ended();
    assert_eq!(selector.first().chosen, None);
    let later = selector.later();
    assert_eq!((later.chosen, later.refused), (None, Vec::new()));
    place.put("today.pt", &at_step(3), 7);
    assert_eq!(name(&selector.later()).as_deref(), Some("today.pt"));
}
