//! No record makes a view panic or grow.

use proptest::prelude::*;

use crate::live::{LiveRun, TimeRange};
use crate::record::Line;

/// Lines that parse more often than not, with numbers and texts of any kind in them.
fn line() -> impl Strategy<Value = String> {
    let number = prop_oneof![any::<u64>(), 0_u64..100_000, Just(u64::MAX)];
    let text = prop_oneof![".{0,20}", Just("\u{1b}[2J\u{202e}".to_owned())];
    let values = (number.clone(), number.clone(), number.clone(), number, text);
    (0..10_u32, values).prop_map(|(kind, (a, b, c, d, text))| {
        let text = serde_json::to_string(&text).unwrap();
        let short = |number: u64| number & 0xffff_ffff;
        match kind {
            0 => format!(r#"{{"line":"run","id":{text},"started_at_unix_ms":{a},"command":[{text}]}}"#),
            1 => format!(
                r#"{{"line":"attempt","number":{},"started_at_unix_ms":{b},"changed":[{{"knob":{text},"from":1,"to":{text}}}]}}"#,
                short(a)
            ),
            2..=4 => format!(
                r#"{{"line":"sample","at_ms":{a},"host":{{"used_bytes":{b},"limit_bytes":{c},"headroom_bytes":{d}}},
                "shm":{{"used_bytes":{d},"total_bytes":{c}}},"stall":{{"some_percent":1e300,"full_percent":-5.0}},
                "gpus":[{{"index":{},"used_bytes":{b},"total_bytes":{c},"ours_bytes":{d}}}],
                "processes":[{{"pid":{},"role":{{"kind":"main"}},"name":{text},"private_bytes":{b},"shared_bytes":{c},"swapped_bytes":{d}}}],
                "gauges":[{{"pid":1,"steps":{b},"epochs":{d},"device":{},"allocated_bytes":{c},"reserved_bytes":{d}}}]}}"#,
                short(c), short(b), short(c)
            )
            .replace('\n', ""),
            5 => format!(r#"{{"line":"alarm","at_ms":{a},"detector":{text},"urgency":"warning","message":{text}}}"#),
            6 => format!(r#"{{"line":"hook","kind":"cuda_oom","at_ms":{a},"device":{}}}"#, short(b)),
            7 => format!(r#"{{"line":"end","at_ms":{a},"outcome":{{"kind":"not_started","error":{text}}},"kernel":{{}},"peaks":{{}},"last":null}}"#),
            8 => format!(r#"{{"line":"gap","at_ms":{a},"message":{text}}}"#),
            _ => text,
        }
    })
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(lines in prop::collection::vec(line(), 0..120)) {
        let mut live = LiveRun::default();
        for line in &lines {
            if let Some(line) = Line::from_json(line.as_bytes()) {
                live.take(line);
            }
        }
        for range in TimeRange::ALL {
            let _ = (live.rise(range), live.forecast(range), live.processes(range));
            prop_assert_eq!(live.used_history().cells(range, 77).len(), 77);
        }
        prop_assert!(live.command().chars().all(crate::printable::is_printable));
        prop_assert!(live.n_held() < 60_000);
    }

    #[test]
    fn bytes_that_are_no_line_are_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Line::from_json(&bytes);
    }
}
