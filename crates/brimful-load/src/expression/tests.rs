use std::fs;

use super::*;

fn expression(json: &str) -> Result<Expression, serde_json::Error> {
    serde_json::from_str(json)
}

#[test]
fn an_expression_opens_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    fs::write(&path, "7\n8\n9\n").unwrap();
    let text = format!(
        r#"{{"source": {{"lines": {:?}}}, "ops": [{{"cast": "int64"}}, {{"rename": "label"}}, {{"part": [1, 3]}}]}}"#,
        path.to_str().unwrap()
    );
    let found = expression(&text).unwrap();
    let pipeline = found.open(&Opening::default()).unwrap();
    assert_eq!(pipeline.source().len(), 2);
    assert_eq!(pipeline.fields()[0].name, "label");
    assert_eq!(pipeline.fields()[0].spec.to_string(), "int64");
    let again = serde_json::to_string(&found).unwrap();
    assert_eq!(expression(&again).unwrap(), found);
}

#[test]
fn what_belongs_to_another_is_refused() {
    let refused = |json: &str| {
        let found = expression(json).unwrap();
        let of_ops = found.ops.iter().map(OpExpression::kind);
        let all = std::iter::once(found.source.kind()).chain(of_ops);
        let first = all.into_iter().find_map(Result::err).unwrap();
        first.to_string()
    };
    assert_eq!(
        refused(r#"{"source": {"json": "text"}}"#),
        "a source must have exactly one of lines, folder, tar, arrow, parquet, npy, hdf5, raw, tokens, found json"
    );
    assert_eq!(
        refused(r#"{"source": {"folder": "x", "json": "text"}}"#),
        "`folder` must have only the options extensions, labels, split, found `json`"
    );
    assert_eq!(
        refused(r#"{"source": {"folder": "x"}, "ops": [{"resize": 224, "end_id": 0}]}"#),
        "`resize` must have only the options field, filter, found `end_id`"
    );
    assert!(expression(r#"{"source": {"folder": "x", "unknown": 1}}"#).is_err());
}
