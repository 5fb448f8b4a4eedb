//! Frozen Python classes from the JSON Schema of a document.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The module with one class per object of the schema, the ones used by others first.
pub(super) fn documents(schemas: &[(&str, &Value)]) -> Result<String> {
    let mut out = String::from(
        "\"\"\"The forms of brimful's documents. Made from the Rust types by `cargo xtask generate`: do not edit.\"\"\"\n\n\
         from __future__ import annotations\n\n\
         from dataclasses import dataclass\n\
         from typing import Any, Literal\n",
    );
    // Documents share some objects.
    let mut written: BTreeMap<&String, &Value> = BTreeMap::new();
    for (document, schema) in schemas {
        let definitions = schema["$defs"]
            .as_object()
            .context("a schema has definitions")?;
        for (name, definition) in definitions {
            if definition.get("properties").is_none() {
                continue;
            }
            match written.insert(name, definition) {
                None => class(&mut out, name, definition, definitions)?,
                Some(other) if other == definition => {}
                Some(_) => bail!("two documents have different objects with the name {name}"),
            }
        }
        class(&mut out, document, schema, definitions)?;
    }
    Ok(out)
}

type Definitions = serde_json::Map<String, Value>;

fn class(out: &mut String, name: &str, schema: &Value, definitions: &Definitions) -> Result<()> {
    let fields = schema["properties"]
        .as_object()
        .context("an object has properties")?;
    let about = description(schema)?;
    write!(
        out,
        "\n\n@dataclass(frozen=True, slots=True)\nclass {name}:\n    \"\"\"{about}\"\"\"\n\n"
    )?;
    // The order of the Rust fields, which the schema keeps in `required`.
    let order: Vec<&str> = schema["required"]
        .as_array()
        .context("every field of a document is required")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if order.len() != fields.len() {
        bail!(
            "{name}: every field of a document must always be there, with null for what is not known"
        );
    }
    for field in &order {
        let form = &fields[*field];
        let kind = Kind::of(form, definitions)?;
        writeln!(out, "    {field}: {}", kind.annotation())?;
        writeln!(out, "    \"\"\"{}\"\"\"", description(form)?)?;
    }
    write!(
        out,
        "\n    @classmethod\n    def _from_json(cls, data: Any) -> {name}:  # noqa: ANN401\n        \
         \"\"\"Make it from parsed JSON.\"\"\"\n        return cls(\n"
    )?;
    for field in &order {
        let kind = Kind::of(&fields[*field], definitions)?;
        let source = format!("data[\"{field}\"]");
        writeln!(out, "            {field}={},", kind.conversion(&source))?;
    }
    out.push_str("        )\n");
    Ok(())
}

fn description(schema: &Value) -> Result<String> {
    let text = schema["description"]
        .as_str()
        .with_context(|| format!("everything in a document is described, but not {schema}"))?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// What a field may hold.
enum Kind {
    Plain(&'static str),
    Class(String),
    List(Box<Kind>),
    Optional(Box<Kind>),
}

impl Kind {
    fn of(schema: &Value, definitions: &Definitions) -> Result<Kind> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference
                .rsplit('/')
                .next()
                .context("a reference has a name")?;
            if definitions[name].get("properties").is_some() {
                return Ok(Kind::Class(name.into()));
            }
            return Kind::union(&definitions[name]["anyOf"], definitions);
        }
        if schema.get("anyOf").is_some() {
            return Kind::union(&schema["anyOf"], definitions);
        }
        if let Some(types) = schema["type"].as_array() {
            let named: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
            let [inner, "null"] = named[..] else {
                bail!("a union that is not known here: {schema}");
            };
            let mut plain = schema.clone();
            plain["type"] = inner.into();
            return Ok(Kind::Optional(Box::new(Kind::of(&plain, definitions)?)));
        }
        Ok(match schema["type"].as_str() {
            Some("integer") => Kind::Plain("int"),
            Some("number") => Kind::Plain("float"),
            Some("boolean") => Kind::Plain("bool"),
            Some("string") => Kind::Plain("str"),
            // Knobs and their values.
            Some("object") if schema.get("additionalProperties").is_some() => {
                Kind::Plain("dict[str, bool | int | float | str]")
            }
            Some("array") => Kind::List(Box::new(Kind::of(&schema["items"], definitions)?)),
            _ => bail!("a form that is not known here: {schema}"),
        })
    }

    /// `X or null`, or a number or the word `unlimited`.
    fn union(options: &Value, definitions: &Definitions) -> Result<Kind> {
        let options = options.as_array().context("a union has members")?;
        match &options[..] {
            [inner, null] if null["type"] == "null" => {
                Ok(Kind::Optional(Box::new(Kind::of(inner, definitions)?)))
            }
            [number, word] if word["$ref"] == "#/$defs/Unlimited" => {
                match number["type"].as_str() {
                    Some("integer") => Ok(Kind::Plain("int | Literal[\"unlimited\"]")),
                    Some("number") => Ok(Kind::Plain("float | Literal[\"unlimited\"]")),
                    _ => bail!("a union that is not known here: {options:?}"),
                }
            }
            _ => bail!("a union that is not known here: {options:?}"),
        }
    }

    fn annotation(&self) -> String {
        match self {
            Kind::Plain(name) => (*name).into(),
            Kind::Class(name) => name.clone(),
            Kind::List(inner) => format!("tuple[{}, ...]", inner.annotation()),
            Kind::Optional(inner) => format!("{} | None", inner.annotation()),
        }
    }

    fn conversion(&self, source: &str) -> String {
        match self {
            Kind::Plain(_) => source.into(),
            Kind::Class(name) => format!("{name}._from_json({source})"),
            Kind::List(inner) => match &**inner {
                Kind::Plain(_) => format!("tuple({source})"),
                inner => format!("tuple({} for item in {source})", inner.conversion("item")),
            },
            Kind::Optional(inner) => match &**inner {
                Kind::Plain(_) => source.into(),
                inner => format!("None if {source} is None else {}", inner.conversion(source)),
            },
        }
    }
}
