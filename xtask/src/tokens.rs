//! Helpers for reading Rust source as a stream of tokens.

use proc_macro2::{Delimiter, TokenTree};

/// Keywords after which the name of an item stands.
pub(crate) const DECLARING: [&str; 8] =
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

/// Keywords that may stand between one of [`DECLARING`] and the name, or begin the visibility of an item.
pub(crate) const QUALIFYING: [&str; 8] =
    ["pub", "unsafe", "async", "extern", "mut", "impl", "mod", "use"];

/// Returns the index after the attribute at `at`, and after its item if the item is for tests.
pub(crate) fn skip_attribute(tokens: &[TokenTree], at: usize) -> usize {
    let Some(TokenTree::Group(group)) = tokens.get(at + 1) else { return at + 1 };
    let text: String = group.stream().into_iter().map(|token| token.to_string()).collect();
    if text.replace(' ', "") == "cfg(test)" { end_of_item(tokens, at + 2) } else { at + 2 }
}

/// Returns the index after the item, field or statement that begins at `at`.
fn end_of_item(tokens: &[TokenTree], mut at: usize) -> usize {
    let mut is_item = false;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                is_item |= DECLARING.contains(&word.as_str()) || QUALIFYING[5..].contains(&&*word);
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                // A brace inside a `use` tree is followed by the semicolon.
                return at + 1 + usize::from(is_punct(tokens, at + 1, ';'));
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => return at + 1,
            TokenTree::Punct(mark) if mark.as_char() == ',' && !is_item => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Returns the identifier at `at`, if there is one.
pub(crate) fn ident(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

/// Returns whether the token at `at` is the identifier `word`.
pub(crate) fn is_word(tokens: &[TokenTree], at: usize, word: &str) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Ident(found)) if *found == word)
}

/// Returns whether the token at `at` is the mark `mark`.
pub(crate) fn is_punct(tokens: &[TokenTree], at: usize, mark: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(found)) if found.as_char() == mark)
}
