//! What came of all runs: a table, counts, a document.

use serde::Serialize;

use crate::faults::judge::{Kind, Problem};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) fault: String,
    pub(crate) round: u32,
    pub(crate) expected: String,
    /// What was found, in a few words.
    pub(crate) found: String,
    /// The verdict, in brimful's own words.
    pub(crate) summary: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) seconds: f64,
    /// Why it could not be run here.
    pub(crate) skipped: Option<String>,
    pub(crate) problems: Vec<Problem>,
    /// What went wrong in earlier tries of this run, where a later one was right: luck, such as the kernel's choice of a
    /// victim.
    pub(crate) flaky: Vec<Problem>,
}

/// Sums over all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) runs: usize,
    pub(crate) skipped: usize,
    pub(crate) right_causes: usize,
    /// Right in every respect.
    pub(crate) perfect: usize,
    /// Right, but not at the first try.
    pub(crate) flaky: usize,
    pub(crate) leftovers: usize,
    pub(crate) unreadable_records: usize,
}

/// The whole, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    pub(crate) schema_version: u32,
    pub(crate) rounds: u32,
    pub(crate) counts: Counts,
    pub(crate) runs: &'a [Row],
}

impl Row {
    pub(crate) fn is_perfect(&self) -> bool {
        self.skipped.is_none() && self.problems.is_empty()
    }

    fn has(&self, kind: Kind) -> bool {
        self.problems.iter().any(|problem| problem.kind == kind)
    }

    /// Its line in the table, and one for each problem.
    pub(crate) fn lines(&self) -> String {
        let word = match (&self.skipped, self.is_perfect()) {
            (Some(_), _) => "skipped",
            (None, true) if !self.flaky.is_empty() => "FLAKY",
            (None, true) => "ok",
            (None, false) => "WRONG",
        };
        let code = self
            .exit_code
            .map_or_else(|| "–".into(), |code| code.to_string());
        let mut text = format!(
            "{:<30} {:<29} {:<48} {code:>4} {:>6.1} s  {word}",
            self.fault, self.expected, self.found, self.seconds
        );
        if let Some(reason) = &self.skipped {
            text.push_str("\n    ");
            text.push_str(reason);
        }
        for problem in self.problems.iter().chain(&self.flaky) {
            text.push_str("\n    ");
            text.push_str(&problem.text);
        }
        text
    }
}

impl Counts {
    pub(crate) fn of(rows: &[Row]) -> Counts {
        let count = |wanted: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| wanted(row)).count();
        let skipped = count(&|row| row.skipped.is_some());
        Counts {
            runs: rows.len() - skipped,
            skipped,
            right_causes: count(&|row| row.skipped.is_none() && !row.has(Kind::Cause)),
            perfect: count(&Row::is_perfect),
            flaky: count(&|row| row.is_perfect() && !row.flaky.is_empty()),
            leftovers: rows
                .iter()
                .flat_map(|row| &row.problems)
                .filter(|problem| problem.kind == Kind::Leftover)
                .count(),
            unreadable_records: count(&|row| row.has(Kind::Record)),
        }
    }

    pub(crate) fn is_perfect(&self) -> bool {
        self.perfect == self.runs
    }

    pub(crate) fn lines(&self, bare: bool) -> String {
        let Counts {
            runs,
            skipped,
            right_causes,
            perfect,
            flaky,
            leftovers,
            unreadable_records,
        } = self;
        if bare {
            return format!(
                "{perfect} of {runs} ended as they should, {flaky} flaky, {skipped} skipped"
            );
        }
        format!(
            "{right_causes} of {runs} causes right, {perfect} right in every respect, {flaky} flaky, \
             {leftovers} leftovers, {unreadable_records} unreadable records, {skipped} skipped"
        )
    }
}

/// The head of the table.
pub(crate) fn head() -> String {
    format!(
        "{:<30} {:<29} {:<48} {:>4} {:>8}",
        "fault", "expected", "found", "exit", "time"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kinds: &[Kind], skipped: bool) -> Row {
        Row {
            fault: "burst".into(),
            round: 1,
            expected: "host_oom_kill".into(),
            found: "host_oom_kill, leak, proved".into(),
            summary: None,
            exit_code: Some(137),
            seconds: 1.25,
            skipped: skipped.then(|| "no groups".into()),
            problems: kinds
                .iter()
                .map(|kind| Problem {
                    kind: *kind,
                    text: "this".into(),
                })
                .collect(),
            flaky: Vec::new(),
        }
    }

    #[test]
    fn counts_tell_the_kinds_apart() {
        let rows = [
            row(&[], false),
            row(&[], true),
            row(&[Kind::Leftover, Kind::Leftover, Kind::Record], false),
            row(&[Kind::Cause], false),
        ];
        let counts = Counts::of(&rows);
        assert_eq!(
            counts,
            Counts {
                runs: 3,
                skipped: 1,
                right_causes: 2,
                perfect: 1,
                flaky: 0,
                leftovers: 2,
                unreadable_records: 1,
            }
        );
        assert!(!counts.is_perfect());
        assert!(Counts::of(&rows[..2]).is_perfect());
    }

    #[test]
    fn a_row_says_what_is_wrong() {
        let text = row(&[Kind::Proof], false).lines();
        assert!(text.contains("WRONG\n    this"), "{text}");
        assert!(row(&[], true).lines().ends_with("skipped\n    no groups"));
        assert!(row(&[], false).lines().ends_with("137    1.2 s  ok"));
    }

    #[test]
    fn a_run_that_was_right_at_a_later_try_is_reported_as_flaky_and_fails_nothing() {
        let lucky = Row {
            flaky: row(&[Kind::Ending], false).problems,
            ..row(&[], false)
        };
        assert!(lucky.lines().ends_with("FLAKY\n    this"));
        let counts = Counts::of(&[lucky]);
        assert!(counts.is_perfect());
        assert_eq!(counts.flaky, 1);
    }
}
