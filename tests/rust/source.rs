//! The source files of the crates, parsed: what they use of their crate, and their code without tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A path in a crate without the name of the crate: `["http", "body"]`.
pub type CratePath = Vec<String>;

/// A source file of a crate; tests are left out.
pub struct SourceFile {
    /// Where it is, below the root of the repository.
    pub path: PathBuf,
    /// Its module.
    pub module: CratePath,
    /// Its code without comments and without tests.
    pub code: String,
    /// What it uses of its crate.
    pub uses: BTreeSet<CratePath>,
    /// What it re-exports: the last name, and the path of what has this name.
    pub reexports: BTreeMap<String, CratePath>,
}

/// A crate of the workspace.
pub struct Crate {
    /// The name without `ginnel-`; `ginnel` for the extension module.
    pub name: String,
    /// The folder with its `Cargo.toml`, below the root of the repository.
    pub folder: PathBuf,
    /// Its files; the first one is `lib.rs`.
    pub files: Vec<SourceFile>,
}

/// Reads all crates of the workspace.
pub fn crates() -> Vec<Crate> {
    let folders = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path());
    let mut crates: Vec<_> = folders
        .map(|folder| read_crate(folder.file_name().unwrap().to_str().unwrap(), &folder))
        .collect();
    crates.push(read_crate("ginnel", Path::new("")));
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    crates
}

fn read_crate(name: &str, folder: &Path) -> Crate {
    let mut files = Vec::new();
    read_file(&folder.join("src/lib.rs"), Vec::new(), &mut files);
    assert!(!files.is_empty(), "{name} holds no code");
    Crate { name: name.to_owned(), folder: folder.to_owned(), files }
}

/// Reads a file, and the files of the modules that it declares.
fn read_file(path: &Path, module: CratePath, files: &mut Vec<SourceFile>) {
    let text = fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let file = syn::parse_file(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let mut reader = Reader::new(module.clone(), &file.items);
    reader.visit_file(&file);
    let children = reader.files.clone();
    files.push(SourceFile {
        path: path.to_owned(),
        module: module.clone(),
        code: without_lines(&text, &reader.tests),
        uses: reader.uses,
        reexports: reader.reexports,
    });
    for child in children {
        let of_child = [&module[..], &child[..]].concat();
        read_file(&file_of(path, &child), of_child, files);
    }
}

/// The file of a module that another file declares.
fn file_of(parent: &Path, child: &[String]) -> PathBuf {
    let stem = parent.file_stem().unwrap();
    let mut folder = match stem.to_str() {
        Some("lib" | "mod") => parent.parent().unwrap().to_owned(),
        _ => parent.with_extension(""),
    };
    folder.extend(child);
    let file = folder.with_extension("rs");
    if file.is_file() { file } else { folder.join("mod.rs") }
}

/// A text without some of its lines and without comments.
fn without_lines(text: &str, left_out: &[(usize, usize)]) -> String {
    let lines = text.lines().enumerate().map(|(at, line)| {
        let is_left_out = left_out.iter().any(|(first, last)| (*first..=*last).contains(&(at + 1)));
        if is_left_out { "" } else { line.split("//").next().unwrap_or_default() }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Collects what a file uses.
struct Reader {
    /// The module of the file, and of modules in it.
    module: CratePath,
    /// How much of `module` belongs to the file.
    depth: usize,
    /// The modules that the file declares, inline or in files.
    children: BTreeSet<String>,
    /// Those in files of their own, below the module of the file.
    files: Vec<CratePath>,
    uses: BTreeSet<CratePath>,
    reexports: BTreeMap<String, CratePath>,
    /// First and last lines of tests.
    tests: Vec<(usize, usize)>,
}

impl Reader {
    fn new(module: CratePath, items: &[Item]) -> Self {
        let children = items.iter().filter_map(|item| match item {
            Item::Mod(it) => Some(it.ident.to_string()),
            _ => None,
        });
        Self {
            depth: module.len(),
            module,
            children: children.collect(),
            files: Vec::new(),
            uses: BTreeSet::new(),
            reexports: BTreeMap::new(),
            tests: Vec::new(),
        }
    }

    /// The path that begins with a word, without the word; `None` for other crates.
    fn base(&self, first: &str) -> Option<CratePath> {
        match first {
            "crate" => Some(Vec::new()),
            "super" => Some(self.module[..self.module.len().saturating_sub(1)].to_vec()),
            "self" => Some(self.module.clone()),
            child if self.children.contains(child) => {
                Some([&self.module[..self.depth], &[child.to_owned()]].concat())
            }
            _ => None,
        }
    }

    fn use_path(&mut self, words: &[String]) {
        let Some((first, rest)) = words.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return;
        };
        if let Some(path) = self.base(first).map(|base| joined(base, rest)) {
            self.uses.insert(path);
        }
    }

    fn use_tree(&mut self, tree: &UseTree, words: &mut Vec<String>, is_public: bool) {
        match tree {
            UseTree::Path(it) => {
                words.push(it.ident.to_string());
                self.use_tree(&it.tree, words, is_public);
                words.pop();
            }
            UseTree::Group(it) => {
                it.items.iter().for_each(|tree| self.use_tree(tree, words, is_public));
            }
            UseTree::Name(it) => self.use_name(it.ident.to_string(), None, words, is_public),
            UseTree::Rename(it) => {
                let shown = it.rename.to_string();
                self.use_name(it.ident.to_string(), Some(shown), words, is_public);
            }
            UseTree::Glob(_) => self.use_path(&[&words[..], &["*".to_owned()]].concat()),
        }
    }

    fn use_name(&mut self, name: String, shown: Option<String>, words: &[String], is_public: bool) {
        let path = [words, std::slice::from_ref(&name)].concat();
        self.use_path(&path);
        if let Some((first, rest)) = path.split_first().filter(|_| is_public)
            && let Some(base) = self.base(first)
        {
            self.reexports.insert(shown.unwrap_or(name), joined(base, rest));
        }
    }

    /// Paths in the tokens of a macro.
    fn use_tokens(&mut self, tokens: TokenStream) {
        let mut words: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(it) if it.as_char() == ':' => {
                    colons += 1;
                    if colons == 1 && it.spacing() == Spacing::Alone {
                        words.clear();
                    }
                    continue;
                }
                TokenTree::Ident(it) => {
                    if colons != 2 {
                        self.use_path(&words);
                        words.clear();
                    }
                    words.push(it.to_string());
                }
                TokenTree::Group(it) => {
                    self.use_path(&words);
                    words.clear();
                    self.use_tokens(it.stream());
                }
                _ => {
                    self.use_path(&words);
                    words.clear();
                }
            }
            colons = 0;
        }
        self.use_path(&words);
    }
}

/// A path with more words, which may be `super` and `self`.
fn joined(mut path: CratePath, words: &[String]) -> CratePath {
    for word in words {
        match word.as_str() {
            "super" => drop(path.pop()),
            "self" | "*" => {}
            _ => path.push(word.clone()),
        }
    }
    path
}

/// Whether an item exists in tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let is_test = |tokens: &str| {
            let mut words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| word == "test") && !tokens.contains("not")
        };
        attribute.path().is_ident("test")
            || is_cfg
                && attribute.meta.require_list().is_ok_and(|it| is_test(&it.tokens.to_string()))
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

impl Visit<'_> for Reader {
    fn visit_item(&mut self, item: &Item) {
        if is_test(attributes_of(item)) {
            self.tests.push((item.span().start().line, item.span().end().line));
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &syn::ImplItemFn) {
        if is_test(&function.attrs) {
            self.tests.push((function.span().start().line, function.span().end().line));
        } else {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        let below = [&self.module[self.depth..], &[item.ident.to_string()]].concat();
        if item.content.is_none() {
            self.files.push(below);
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        let is_public = !matches!(item.vis, Visibility::Inherited);
        self.use_tree(&item.tree, &mut Vec::new(), is_public);
    }

    /// `pub(in crate::gateway)` uses nothing.
    fn visit_vis_restricted(&mut self, _: &syn::VisRestricted) {}

    fn visit_path(&mut self, path: &syn::Path) {
        let words: Vec<_> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.use_path(&words);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        self.use_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}
