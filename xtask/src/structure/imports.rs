//! Which file of a crate uses which, and where they go round in a circle.
//!
//! An import is attributed to the file that defines the item, through re-exports: a `mod.rs` that only passes names on is
//! not part of a circle.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::sources::{SourceFile, is_test};

/// Maximum number of re-exports that a name is looked up through.
const MAX_DEPTH: usize = 16;

type Module = Vec<String>;

/// What one module has to offer.
#[derive(Default)]
struct Scope {
    items: BTreeSet<String>,
    children: BTreeSet<String>,
    /// What `use` brings in, with whether it is passed on.
    names: BTreeMap<String, (Module, bool)>,
    globs: Vec<Module>,
}

/// Groups of files that import each other, each on one line.
pub(super) fn cycles(files: &[SourceFile]) -> Vec<String> {
    let scopes: BTreeMap<&Module, Scope> = files
        .iter()
        .map(|file| (&file.module, scope(&file.syntax)))
        .collect();
    let edges: Vec<BTreeSet<usize>> = files
        .iter()
        .map(|file| {
            let used = uses(file, &scopes);
            (files.iter().enumerate())
                .filter(|(_, other)| other.module != file.module && used.contains(&other.module))
                .map(|(at, _)| at)
                .collect()
        })
        .collect();
    let reached: Vec<BTreeSet<usize>> = (0..files.len()).map(|at| reach(&edges, at)).collect();
    let mut groups = BTreeSet::new();
    for at in 0..files.len() {
        if reached[at].contains(&at) {
            let group: Vec<usize> = (0..files.len())
                .filter(|other| reached[at].contains(other) && reached[*other].contains(&at))
                .collect();
            groups.insert(group);
        }
    }
    groups
        .into_iter()
        .map(|group| {
            let paths: Vec<&str> = group.iter().map(|at| files[*at].path.as_str()).collect();
            paths.join(", ")
        })
        .collect()
}

/// Every file that can be reached by at least one import.
fn reach(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut left: Vec<usize> = edges[from].iter().copied().collect();
    while let Some(at) = left.pop() {
        if found.insert(at) {
            left.extend(&edges[at]);
        }
    }
    found
}

fn scope(file: &syn::File) -> Scope {
    let mut scope = Scope::default();
    for item in &file.items {
        match item {
            syn::Item::Use(item) => {
                let is_passed_on = !matches!(item.vis, syn::Visibility::Inherited);
                collect(&item.tree, &mut Vec::new(), is_passed_on, &mut scope);
            }
            syn::Item::Mod(item) if item.content.is_none() => {
                scope.children.insert(item.ident.to_string());
            }
            _ => scope.items.extend(name_of(item)),
        }
    }
    scope
}

fn name_of(item: &syn::Item) -> Option<String> {
    Some(match item {
        syn::Item::Const(item) => item.ident.to_string(),
        syn::Item::Enum(item) => item.ident.to_string(),
        syn::Item::Fn(item) => item.sig.ident.to_string(),
        syn::Item::Macro(item) => item.ident.as_ref()?.to_string(),
        syn::Item::Mod(item) => item.ident.to_string(),
        syn::Item::Static(item) => item.ident.to_string(),
        syn::Item::Struct(item) => item.ident.to_string(),
        syn::Item::Trait(item) => item.ident.to_string(),
        syn::Item::Type(item) => item.ident.to_string(),
        syn::Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// The names that a `use` brings in.
fn collect(tree: &syn::UseTree, before: &mut Module, is_passed_on: bool, scope: &mut Scope) {
    let mut add = |name: String, path: Module| {
        scope.names.insert(name, (path, is_passed_on));
    };
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            collect(&path.tree, before, is_passed_on, scope);
            before.pop();
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = before.last() {
                add(last.clone(), before.clone());
            }
        }
        syn::UseTree::Name(name) => {
            let path = [before.as_slice(), &[name.ident.to_string()]].concat();
            add(name.ident.to_string(), path);
        }
        syn::UseTree::Rename(rename) => {
            let path = [before.as_slice(), &[rename.ident.to_string()]].concat();
            add(rename.rename.to_string(), path);
        }
        syn::UseTree::Glob(_) => scope.globs.push(before.clone()),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                collect(tree, before, is_passed_on, scope);
            }
        }
    }
}

/// The modules whose items a file uses.
fn uses(file: &SourceFile, scopes: &BTreeMap<&Module, Scope>) -> BTreeSet<Module> {
    struct Paths(Vec<Module>);

    impl<'ast> Visit<'ast> for Paths {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            let names = path.segments.iter().map(|part| part.ident.to_string());
            self.0.push(names.collect());
            syn::visit::visit_path(self, path);
        }

        fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_mod(self, item);
            }
        }

        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_fn(self, item);
            }
        }

        // What they bring in is in the scope.
        fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}
    }

    let mut paths = Paths(Vec::new());
    paths.visit_file(&file.syntax);
    let own = &scopes[&file.module];
    let imported = own.names.values();
    let imported = imported
        .filter(|(_, is_passed_on)| !is_passed_on)
        .map(|(path, _)| path.clone());
    let globs = own.globs.iter().cloned();
    let all = paths.0.into_iter().chain(imported).chain(globs);
    all.filter_map(|path| definer(scopes, &file.module, &path, MAX_DEPTH))
        .collect()
}

/// The module that defines what a path means in a module; nothing for other crates and for whole modules.
fn definer(
    scopes: &BTreeMap<&Module, Scope>,
    module: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut at = module.clone();
    match first.as_str() {
        "crate" => return definer_in(scopes, &Vec::new(), rest, depth),
        "self" => return definer_in(scopes, module, rest, depth),
        "super" => {
            at.pop()?;
            return match rest.first().map(String::as_str) {
                Some("super") => definer(scopes, &at, rest, depth),
                _ => definer_in(scopes, &at, rest, depth),
            };
        }
        _ => {}
    }
    definer_in(scopes, module, path, depth)
}

fn definer_in(
    scopes: &BTreeMap<&Module, Scope>,
    module: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    let scope = scopes.get(module)?;
    let (first, rest) = path.split_first()?;
    let depth = depth.checked_sub(1)?;
    if scope.children.contains(first) {
        let child = [module.as_slice(), std::slice::from_ref(first)].concat();
        return definer_in(scopes, &child, rest, depth);
    }
    if scope.items.contains(first) {
        return Some(module.clone());
    }
    if let Some((target, _)) = scope.names.get(first) {
        // Another crate, or a name that is itself.
        if target.as_slice() == path {
            return None;
        }
        let target = [target.as_slice(), rest].concat();
        return definer(scopes, module, &target, depth);
    }
    let mut globs = scope.globs.iter();
    globs.find_map(|glob| {
        let target = [glob.as_slice(), path].concat();
        definer(scopes, module, &target, depth)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile::parse(path, text))
            .collect();
        assert_eq!(cycles(&files), expected);
    }

    #[test]
    fn files_that_use_each_other_are_a_cycle() {
        check(
            &[
                ("src/lib.rs", "mod a; mod b; mod c;"),
                ("src/a.rs", "use crate::b::B; pub struct A;"),
                ("src/b.rs", "pub struct B; fn f() { crate::c::g() }"),
                ("src/c.rs", "use super::a::A; pub fn g() {}"),
            ],
            &["src/a.rs, src/b.rs, src/c.rs"],
        );
    }

    #[test]
    fn a_module_that_passes_names_on_is_none() {
        check(
            &[
                ("src/lib.rs", "mod a;"),
                (
                    "src/a/mod.rs",
                    "mod x; mod y; pub use x::X; pub(crate) use y::*;",
                ),
                ("src/a/x.rs", "use crate::a::Y; pub struct X;"),
                ("src/a/y.rs", "pub struct Y;"),
            ],
            &[],
        );
        check(
            &[
                ("src/lib.rs", "mod a;"),
                ("src/a/mod.rs", "mod x; pub use x::X; pub struct Own(X);"),
                ("src/a/x.rs", "use super::Own; pub struct X;"),
            ],
            &["src/a/mod.rs, src/a/x.rs"],
        );
    }

    #[test]
    fn tests_and_other_crates_do_not_count() {
        check(
            &[
                ("src/lib.rs", "mod a; mod b;"),
                ("src/a.rs", "use std::fmt; use crate::b; fn f() { b::g() }"),
                (
                    "src/b.rs",
                    "pub fn g() {} #[cfg(test)] mod tests { use crate::a::f; }",
                ),
            ],
            &[],
        );
    }
}
