//! Finder of all functions whose body contains a sequence of tokens.
//!
//! A row of the page that says "every `pattern`" claims to name each such function. Code for tests is left out.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tokens::{ident, is_punct, is_word, skip_attribute};

/// One function of a source file.
pub(super) struct Function {
    pub(super) name: String,
    /// Tokens of the body, delimiters included; bodies of nested functions left out.
    body: Vec<String>,
}

impl Function {
    /// Returns whether the body contains the tokens of `pattern` one after the other.
    pub(super) fn contains(&self, pattern: &[String]) -> bool {
        self.body.windows(pattern.len()).any(|window| window == pattern)
    }
}

/// Returns the tokens of `text`; an error if the text is no sequence of Rust tokens.
pub(super) fn pattern(text: &str) -> Result<Vec<String>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("`{text}`: {error}"))?;
    let mut flat = Vec::new();
    flatten(&tokens.into_iter().collect::<Vec<_>>(), &mut flat);
    Ok(flat)
}

/// Returns the functions of the file at `path`, with `text`, that are not for tests.
pub(super) fn functions(path: &Path, text: &str) -> Result<Vec<Function>> {
    let tokens: TokenStream = text
        .parse()
        .map_err(|error| anyhow!("cannot be tokenized: {error}"))
        .with_context(|| format!("{}", path.display()))?;
    let mut found = Vec::new();
    collect(&tokens.into_iter().collect::<Vec<_>>(), &mut found);
    Ok(found)
}

/// Adds the functions among `tokens`, and inside their groups.
fn collect(tokens: &[TokenTree], found: &mut Vec<Function>) {
    let mut at = 0;
    while at < tokens.len() {
        at = match &tokens[at] {
            TokenTree::Punct(mark) if mark.as_char() == '#' => skip_attribute(tokens, at),
            TokenTree::Ident(word) if *word == "mod" && is_word(tokens, at + 1, "tests") => at + 3,
            TokenTree::Ident(word) if *word == "fn" && ident(tokens, at + 1).is_some() => {
                collect_function(tokens, at + 1, found)
            }
            TokenTree::Group(group) => {
                collect(&group.stream().into_iter().collect::<Vec<_>>(), found);
                at + 1
            }
            _ => at + 1,
        };
    }
}

/// Adds the function whose name is at `name`, and those inside it; returns the index after its body.
fn collect_function(tokens: &[TokenTree], name: usize, found: &mut Vec<Function>) -> usize {
    for (at, token) in tokens.iter().enumerate().skip(name + 1) {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut body = Vec::new();
                flatten(&inner, &mut body);
                found.push(Function { name: tokens[name].to_string(), body });
                collect(&inner, found);
                return at + 1;
            }
            _ if is_punct(tokens, at, ';') => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Adds the text of each token; the body of a nested function is left out.
fn flatten(tokens: &[TokenTree], into: &mut Vec<String>) {
    let mut in_function = false;
    for (at, token) in tokens.iter().enumerate() {
        in_function |= is_word(tokens, at, "fn") && ident(tokens, at + 1).is_some();
        match token {
            TokenTree::Group(group) if in_function && group.delimiter() == Delimiter::Brace => {
                in_function = false;
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                into.push(open.into());
                flatten(&group.stream().into_iter().collect::<Vec<_>>(), into);
                into.push(close.into());
            }
            token => into.push(token.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, wanted: &str) -> Vec<String> {
        let wanted = pattern(wanted).unwrap();
        let functions = functions(Path::new("a.rs"), text).unwrap();
        functions.into_iter().filter(|f| f.contains(&wanted)).map(|f| f.name).collect()
    }

    #[test]
    fn a_function_is_found_by_the_tokens_of_its_body() {
        let text =
            "impl A { fn full(&self) -> R { Err(Error::NoSpace) } fn other(e: Error::NoSpace) {} }";
        assert_eq!(names(text, "Error::NoSpace"), ["full"]);
        assert_eq!(names("fn set(e: &mut E) { e.state = S::Clean; }", "state = S::Clean"), ["set"]);
        assert_eq!(
            names("fn ask(e: &E) -> bool { e.state == S::Clean }", "state = S::Clean"),
            [""; 0]
        );
    }

    #[test]
    fn a_nested_function_answers_for_itself() {
        let text = "fn outer() { fn inner() { hit() } inner() }";
        assert_eq!(names(text, "hit"), ["inner"]);
    }

    #[test]
    fn code_for_tests_comments_and_strings_are_left_out() {
        let text = "#[cfg(test)] mod tests { fn a() { hit() } }\n mod tests { fn b() { hit() } }\n\
                    // fn c() { hit() }\n fn d() { say(\"hit\") }\n #[cfg(test)] fn e() { hit() }";
        assert_eq!(names(text, "hit"), [""; 0]);
    }
}
