//! Reader of one source file: the names that the file declares, and the paths that it names.
//!
//! The file is read as a stream of tokens, so comments and strings are ignored, and paths inside
//! macro calls are found. Code under `#[cfg(test)]` is left out.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tokens::{DECLARING, QUALIFYING, ident, is_punct, is_word, skip_attribute};

/// One module: a file, or a `mod name { ... }` in one.
#[derive(Default)]
pub(super) struct SourceFile {
    /// Items declared here: functions, types, traits, constants, statics and macros.
    pub(super) items: BTreeSet<String>,
    /// Names among [`Self::items`] that are macros, which the root of the crate may export.
    pub(super) macros: BTreeSet<String>,
    pub(super) children: Vec<Child>,
    pub(super) imports: Vec<Import>,
    /// Paths of two segments and more outside `use`, with their lines.
    pub(super) paths: Vec<(Vec<String>, usize)>,
    /// Identifiers outside `use`.
    pub(super) words: BTreeSet<String>,
}

/// A declared module.
pub(super) struct Child {
    pub(super) name: String,
    /// Contents of `mod name { ... }`; `None` if the module has a file.
    pub(super) body: Option<SourceFile>,
}

/// One name that a `use` brings in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// Segments of the path; the last is `*` for a glob.
    pub(super) path: Vec<String>,
    /// Name under which the item is known here.
    pub(super) name: String,
    /// `true` for `pub use`, with any restriction.
    pub(super) public: bool,
    pub(super) line: usize,
}

impl SourceFile {
    /// Reads the text of a file; returns an error if the text is no sequence of Rust tokens.
    pub(super) fn read(text: &str) -> Result<Self> {
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow!("cannot be tokenized: {error}"))?;
        let mut source = Self::default();
        source.scan(&tokens.into_iter().collect::<Vec<_>>(), true)?;
        Ok(source)
    }

    /// Reads `tokens`; those at module level (`outer`) declare items and modules.
    fn scan(&mut self, tokens: &[TokenTree], outer: bool) -> Result<()> {
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at] {
                TokenTree::Punct(mark) if mark.as_char() == '#' => skip_attribute(tokens, at),
                TokenTree::Group(group) => {
                    self.scan(&group.stream().into_iter().collect::<Vec<_>>(), false)?;
                    at + 1
                }
                TokenTree::Ident(word) => self.scan_word(&word.to_string(), tokens, at, outer)?,
                _ => at + 1,
            };
        }
        Ok(())
    }

    /// Reads the construct that begins with `word`, the identifier at `at`; returns the index after the
    /// construct.
    fn scan_word(
        &mut self,
        word: &str,
        tokens: &[TokenTree],
        at: usize,
        outer: bool,
    ) -> Result<usize> {
        let next = ident(tokens, at + 1);
        match word {
            "pub" if is_restriction(tokens.get(at + 1)) => Ok(at + 2),
            "use" if !is_punct(tokens, at + 1, '<') => self.scan_use(tokens, at),
            "mod" if outer && next.is_some() => self.scan_module(tokens, at),
            "macro_rules" if is_punct(tokens, at + 1, '!') => {
                self.items.extend(ident(tokens, at + 2));
                self.macros.extend(ident(tokens, at + 2));
                Ok(at + 3)
            }
            _ => {
                if outer && DECLARING.contains(&word) {
                    let name = if is_word(tokens, at + 1, "mut") {
                        ident(tokens, at + 2)
                    } else {
                        next.filter(|next| {
                            !DECLARING.contains(&next.as_str())
                                && !QUALIFYING.contains(&next.as_str())
                        })
                    };
                    self.items.extend(name);
                }
                Ok(self.scan_path(tokens, at))
            }
        }
    }

    /// Reads the path that begins at `at`, which may be a single identifier.
    fn scan_path(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let (mut segments, mut end) = (vec![tokens[at].to_string()], at + 1);
        while is_path_separator(tokens, end)
            && let Some(segment) = ident(tokens, end + 2)
        {
            segments.push(segment);
            end += 3;
        }
        self.words.extend(segments.iter().cloned());
        if segments.len() > 1 {
            self.paths.push((segments, line(&tokens[at])));
        }
        end
    }

    fn scan_module(&mut self, tokens: &[TokenTree], at: usize) -> Result<usize> {
        let name = tokens[at + 1].to_string();
        let body = match tokens.get(at + 2) {
            Some(TokenTree::Group(group)) => {
                let mut body = Self::default();
                body.scan(&group.stream().into_iter().collect::<Vec<_>>(), true)?;
                Some(body)
            }
            _ => None,
        };
        if name != "tests" {
            self.children.push(Child { name, body });
        }
        Ok(at + 3)
    }

    fn scan_use(&mut self, tokens: &[TokenTree], at: usize) -> Result<usize> {
        let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
        let len = tokens[at..].iter().position(is_end);
        let end =
            at + len.ok_or_else(|| anyhow!("line {}: `use` without end", line(&tokens[at])))?;
        let public = is_word(tokens, at.wrapping_sub(1), "pub")
            || (is_restriction(tokens.get(at.wrapping_sub(1)))
                && is_word(tokens, at.wrapping_sub(2), "pub"));
        use_tree(&tokens[at + 1..end], &[], public, &mut self.imports)?;
        Ok(end + 1)
    }
}

/// Adds the imports of one tree of a `use` declaration below `prefix`.
fn use_tree(
    tokens: &[TokenTree],
    prefix: &[String],
    public: bool,
    imports: &mut Vec<Import>,
) -> Result<()> {
    let mut path = prefix.to_vec();
    let mut renamed = None;
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ',');
                let mut trees = inner.split(is_comma).filter(|tree| !tree.is_empty());
                return trees.try_for_each(|tree| use_tree(tree, &path, public, imports));
            }
            TokenTree::Ident(word) if *word == "as" => {
                renamed = ident(tokens, at + 1);
                at += 1;
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Punct(mark) if mark.as_char() == '*' => path.push("*".into()),
            _ => {}
        }
        at += 1;
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    ensure!(!path.is_empty(), "`use` of nothing");
    let name = renamed.unwrap_or_else(|| path[path.len() - 1].clone());
    let line = tokens.first().map_or(0, line);
    imports.push(Import { path, name, public, line });
    Ok(())
}

/// Returns whether `token` is the parenthesis of `pub(crate)`, `pub(super)` or `pub(in path)`.
fn is_restriction(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    group.delimiter() == Delimiter::Parenthesis
        && group.stream().into_iter().next().is_some_and(|first| {
            ["crate", "super", "self", "in"].contains(&first.to_string().as_str())
        })
}

fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':')
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<String> {
        let source = SourceFile::read(text).unwrap();
        let shown = |import: &Import| {
            let public = if import.public { "pub " } else { "" };
            format!("{public}{} as {} at {}", import.path.join("::"), import.name, import.line)
        };
        source.imports.iter().map(shown).collect()
    }

    #[test]
    fn nested_use_trees_are_flattened() {
        let text = "pub(crate) use crate::{\n    a::{self, B as C},\n    d::*,\n};\nuse super::e;";
        let expected = [
            "pub crate::a as a at 2",
            "pub crate::a::B as C at 2",
            "pub crate::d::* as * at 3",
            "super::e as e at 5",
        ];
        assert_eq!(imports(text), expected);
    }

    #[test]
    fn comments_strings_and_test_code_name_nothing() {
        let text = "// crate::a::b\nconst X: &str = \"crate::a\";\n#[cfg(test)]\nuse crate::c::{D, E};\n\
                    #[cfg(test)]\nfn f<A, B>() { crate::g::h() }\n#[cfg(test)]\nmod properties;\n\
                    struct S { #[cfg(test)] x: crate::i::J, y: u8 }";
        let source = SourceFile::read(text).unwrap();
        assert!(source.imports.is_empty() && source.children.is_empty());
        assert!(source.paths.is_empty(), "{:?}", source.paths);
        assert_eq!(source.items.into_iter().collect::<Vec<_>>(), ["S", "X"]);
    }

    #[test]
    fn paths_inside_bodies_and_macro_calls_are_found() {
        let text = "pub(in crate::z) fn f() {\n    println!(\"{}\", super::a::b());\n}";
        let source = SourceFile::read(text).unwrap();
        assert_eq!(source.paths, [(vec!["super".into(), "a".into(), "b".into()], 2)]);
    }
}
