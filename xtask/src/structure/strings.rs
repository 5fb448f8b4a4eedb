//! Where sources compare texts: kinds that are distinguished by a string, and environment variables that are read by one.

use syn::visit::Visit;

use super::sources::{SourceFile, is_test};

/// Fields and variables of these names say which of several kinds a value is.
const KINDS: [&str; 14] = [
    "brim", "cause", "detail", "detector", "end", "id", "kind", "outcome", "phase", "reason",
    "source", "state", "status", "variant",
];

/// Comparisons of a kind with a literal string, by `==`, `match` or `matches!`.
pub(super) fn kind_comparisons(file: &SourceFile) -> Vec<String> {
    struct Comparisons(Vec<(usize, String)>);

    impl Comparisons {
        fn add(&mut self, value: &syn::Expr, line: usize) {
            if let Some(name) = last_name(value)
                && KINDS.contains(&name.as_str())
            {
                self.0.push((line, name));
            }
        }
    }

    impl<'ast> Visit<'ast> for Comparisons {
        fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
            if matches!(binary.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_)) {
                let line = line_of(&binary.left);
                if is_text(&binary.right) {
                    self.add(&binary.left, line);
                } else if is_text(&binary.left) {
                    self.add(&binary.right, line);
                }
            }
            syn::visit::visit_expr_binary(self, binary);
        }

        fn visit_expr_match(&mut self, matched: &'ast syn::ExprMatch) {
            if matched.arms.iter().any(|arm| has_text(&arm.pat)) {
                self.add(&matched.expr, matched.match_token.span.start().line);
            }
            syn::visit::visit_expr_match(self, matched);
        }

        fn visit_macro(&mut self, made: &'ast syn::Macro) {
            if made.path.is_ident("matches")
                && let Ok((value, pattern)) = made.parse_body_with(value_and_pattern)
                && has_text(&pattern)
            {
                let line = line_of(&value);
                self.add(&value, line);
            }
        }

        fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_mod(self, item);
            }
        }
    }

    let mut comparisons = Comparisons(Vec::new());
    comparisons.visit_file(&file.syntax);
    comparisons
        .0
        .into_iter()
        .map(|(line, name)| format!("{}:{line} {name}", file.path))
        .collect()
}

/// `env::var("NAME")` and `env::var_os("NAME")`.
pub(super) fn raw_environment_reads(file: &SourceFile) -> Vec<String> {
    struct Reads(Vec<usize>);

    impl<'ast> Visit<'ast> for Reads {
        fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
            if let syn::Expr::Path(path) = &*call.func
                && let [.., module, function] = &*path
                    .path
                    .segments
                    .iter()
                    .map(|part| part.ident.to_string())
                    .collect::<Vec<_>>()
                && module == "env"
                && matches!(function.as_str(), "var" | "var_os")
                && call.args.first().is_some_and(is_text)
            {
                self.0.push(line_of(&call.func));
            }
            syn::visit::visit_expr_call(self, call);
        }

        fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_mod(self, item);
            }
        }
    }

    let mut reads = Reads(Vec::new());
    reads.visit_file(&file.syntax);
    let lines = reads.0.into_iter();
    lines.map(|line| format!("{}:{line}", file.path)).collect()
}

fn value_and_pattern(input: syn::parse::ParseStream<'_>) -> syn::Result<(syn::Expr, syn::Pat)> {
    let value = input.parse()?;
    input.parse::<syn::Token![,]>()?;
    let pattern = syn::Pat::parse_multi_with_leading_vert(input)?;
    // A guard, a trailing comma.
    input.parse::<proc_macro2::TokenStream>()?;
    Ok((value, pattern))
}

fn line_of(value: &syn::Expr) -> usize {
    use syn::spanned::Spanned as _;
    value.span().start().line
}

/// The name that an expression ends with: `reason` for `&self.reason.as_str()`.
fn last_name(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Reference(inner) => last_name(&inner.expr),
        syn::Expr::Unary(inner) => last_name(&inner.expr),
        syn::Expr::Paren(inner) => last_name(&inner.expr),
        syn::Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => last_name(&field.base),
        },
        syn::Expr::MethodCall(call)
            if matches!(
                call.method.to_string().as_str(),
                "as_str" | "as_deref" | "as_ref" | "trim"
            ) =>
        {
            last_name(&call.receiver)
        }
        syn::Expr::MethodCall(call) if call.args.is_empty() => Some(call.method.to_string()),
        syn::Expr::Path(path) => path.path.segments.last().map(|part| part.ident.to_string()),
        _ => None,
    }
}

fn is_text(value: &syn::Expr) -> bool {
    match value {
        syn::Expr::Lit(literal) => matches!(literal.lit, syn::Lit::Str(_)),
        // `Some("text")`
        syn::Expr::Call(call) => call.args.len() == 1 && call.args.first().is_some_and(is_text),
        _ => false,
    }
}

fn has_text(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Lit(literal) => matches!(literal.lit, syn::Lit::Str(_)),
        syn::Pat::Or(or) => or.cases.iter().any(has_text),
        syn::Pat::TupleStruct(tuple) => tuple.elems.iter().any(has_text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_told_apart_by_a_string_are_found() {
        let file = SourceFile::parse(
            "src/lib.rs",
            "fn f(a: A) {\n if a.kind == \"x\" {}\n match a.reason.as_str() { \"y\" => 1, _ => 2 };\n \
             matches!(a.end(), \"z\" | \"w\");\n if a.line == \"text\" {}\n if a.kind == Kind::X {}\n}",
        );
        assert_eq!(
            kind_comparisons(&file),
            [
                "src/lib.rs:2 kind",
                "src/lib.rs:3 reason",
                "src/lib.rs:4 end"
            ]
        );
    }

    #[test]
    fn variables_that_are_read_by_a_string_are_found() {
        let file = SourceFile::parse(
            "src/lib.rs",
            "fn f() { std::env::var(\"HOME\");\n env::var_os(HOME);\n env::var_os(\"X\") }",
        );
        assert_eq!(
            raw_environment_reads(&file),
            ["src/lib.rs:1", "src/lib.rs:3"]
        );
    }
}
