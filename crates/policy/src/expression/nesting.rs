//! How deep an expression is nested, read off its text.
//!
//! The parser, and whatever walks its tree afterwards, use some stack for each level, and a stack that
//! overflows ends the process. What is nested too deeply is therefore refused before the parser sees it,
//! in one pass over the text that itself uses no stack.

use std::cmp::max;
use std::sync::LazyLock;

use regex::Regex;

use super::{ExpressionError, ExpressionResult};

/// How deep the tree of an expression may be.
pub(super) const MAX_DEPTH: usize = 128;

/// How many brackets may be open at once. The parser needs up to 11 KiB of stack for each; with these
/// limits, an expression is compiled in half of the 2 MiB that a thread usually has.
const MAX_OPEN_BRACKETS: usize = 64;

/// How many signs may follow one another: many of them take long to parse.
const MAX_SIGNS: usize = 512;

/// What holds neither operators nor brackets: spaces and comments, texts, names, numbers.
const OPAQUE: &str = r#"(?x) ^(?:
    (?<space> [\ \t\r\n\x0C]+ | //[^\n]* )
    | [bB]?[rR] (?: '''(?s:.*?)''' | """(?s:.*?)""" | '[^'\r\n]*' | "[^"\r\n]*" )
    | [bB]? (?: '''(?:ESCAPE|[^\\])*?''' | """(?:ESCAPE|[^\\])*?"""
        | '(?:ESCAPE|[^\\'\r\n])*' | "(?:ESCAPE|[^\\"\r\n])*" )
    | [A-Za-z_][A-Za-z0-9_]* | `[A-Za-z0-9_.\-/\ ]+`
    | (?: [0-9]+(?:\.[0-9]+)? | \.[0-9]+ ) (?:[eE][+-]?[0-9]+)?
)"#;

/// A character that a text spells with a backslash.
const ESCAPE: &str =
    r#"\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"#;

static OPAQUE_TOKEN: LazyLock<Result<Regex, regex::Error>> =
    LazyLock::new(|| Regex::new(&OPAQUE.replace("ESCAPE", ESCAPE)));

/// Refuses an expression that is nested too deeply to be parsed on any stack.
pub(super) fn check_nesting(source: &str) -> ExpressionResult<()> {
    let mut scan = NestingScan::default();
    let mut rest = source;
    while let Some(token) = next_token(&mut rest)? {
        scan.push_token(token)?;
    }
    scan.finish()
}

/// Refuses a depth over [`MAX_DEPTH`].
pub(super) fn check_depth(depth: usize) -> ExpressionResult<()> {
    at_most(depth, MAX_DEPTH, "levels of nesting")
}

fn at_most(number: usize, limit: usize, noun: &str) -> ExpressionResult<()> {
    if number <= limit {
        return Ok(());
    }
    let message = format!("{number} {noun}: at most {limit} are allowed");
    Err(ExpressionError::invalid_expression(message))
}

/// What matters for the depth of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    /// A text, a number or a name.
    Operand,
    Dot,
    Open(u8),
    Close,
    /// `!`, or `-` in front of an operand or between two.
    Sign(u8),
    Infix(Precedence),
    Comma,
    /// Between the results of a condition, or a key and its value.
    Colon,
}

/// How strongly operators bind: the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precedence {
    Condition,
    Or,
    And,
    Relation,
    Sum,
    Product,
}

impl Precedence {
    const COUNT: usize = Self::Product as usize + 1;
}

/// Takes the next token off the text; none at its end.
fn next_token(rest: &mut &str) -> ExpressionResult<Option<Token>> {
    let opaque = OPAQUE_TOKEN.as_ref();
    let opaque = opaque.map_err(|error| ExpressionError::invalid_expression(error.to_string()))?;
    while let Some(first) = rest.chars().next() {
        let (token, length) = match opaque.captures(rest) {
            Some(found) => {
                let is_space = found.name("space").is_some();
                let text = found.get(0).map_or("", |whole| whole.as_str());
                let token =
                    if text == "in" { Token::Infix(Precedence::Relation) } else { Token::Operand };
                ((!is_space).then_some(token), text.len())
            }
            // The parser would find operators and brackets behind it.
            None if matches!(first, '\'' | '"') => {
                let message = format!("invalid expression: {first} begins no valid text");
                return Err(ExpressionError::invalid_expression(message));
            }
            None => scan_punctuation(rest, first),
        };
        *rest = rest.get(length..).unwrap_or_default();
        if token.is_some() {
            return Ok(token);
        }
    }
    Ok(None)
}

/// The operator or bracket that a text begins with, and its length; no token where it is none, which is
/// for the parser to say.
fn scan_punctuation(text: &str, first: char) -> (Option<Token>, usize) {
    let two = match text.get(..2) {
        Some("||") => Some(Precedence::Or),
        Some("&&") => Some(Precedence::And),
        Some("==" | "!=" | "<=" | ">=") => Some(Precedence::Relation),
        _ => None,
    };
    if let Some(precedence) = two {
        return (Some(Token::Infix(precedence)), 2);
    }
    let token = match first {
        '.' => Token::Dot,
        ',' => Token::Comma,
        ':' => Token::Colon,
        '(' | '[' | '{' => Token::Open(first as u8),
        ')' | ']' | '}' => Token::Close,
        '!' | '-' => Token::Sign(first as u8),
        '?' => Token::Infix(Precedence::Condition),
        '<' | '>' => Token::Infix(Precedence::Relation),
        '+' => Token::Infix(Precedence::Sum),
        '*' | '/' | '%' => Token::Infix(Precedence::Product),
        _ => return (None, first.len_utf8()),
    };
    (Some(token), 1)
}

/// Follows the brackets of a text.
#[derive(Default)]
struct NestingScan {
    /// What is around the innermost bracket, outermost first.
    outer: Vec<OpenBracket>,
    here: BracketGroup,
    /// How many signs came last.
    signs: usize,
}

/// A bracket that is not closed yet.
struct OpenBracket {
    group: BracketGroup,
    /// Whether it is a level of the tree, which brackets around a whole operand are not.
    is_level: bool,
}

impl NestingScan {
    fn push_token(&mut self, token: Token) -> ExpressionResult<()> {
        self.signs = if matches!(token, Token::Sign(_)) { self.signs + 1 } else { 0 };
        at_most(self.signs, MAX_SIGNS, "signs after one another")?;
        match token {
            Token::Open(bracket) => return self.open_bracket(bracket),
            Token::Close => return self.close_bracket(),
            Token::Operand => self.here.has_operand = true,
            Token::Dot => self.here.operand += 1,
            Token::Sign(b'-') if self.here.has_operand => self.here.push_infix(Precedence::Sum),
            Token::Sign(_) => self.here.has_odd_signs ^= true,
            Token::Infix(precedence) => self.here.push_infix(precedence),
            Token::Colon => self.here.end_branch(),
            Token::Comma => self.here.end_entry(),
        }
        Ok(())
    }

    fn open_bracket(&mut self, bracket: u8) -> ExpressionResult<()> {
        let is_level = bracket != b'(' || self.here.has_operand;
        let group = std::mem::take(&mut self.here);
        self.outer.push(OpenBracket { group, is_level });
        at_most(self.outer.len(), MAX_OPEN_BRACKETS, "brackets inside one another")
    }

    fn close_bracket(&mut self) -> ExpressionResult<()> {
        let inner = self.here.depth();
        // The parser has more to say about a bracket that was never opened.
        let Some(OpenBracket { group, is_level }) = self.outer.pop() else { return Ok(()) };
        self.here = group;
        self.here.operand = max(self.here.operand, inner) + usize::from(is_level);
        self.here.has_operand = true;
        check_depth(self.here.operand)
    }

    fn finish(mut self) -> ExpressionResult<()> {
        check_depth(self.here.depth())?;
        while !self.outer.is_empty() {
            self.close_bracket()?;
        }
        check_depth(self.here.depth())
    }
}

/// What stands between two brackets, as far as it was read.
#[derive(Default)]
struct BracketGroup {
    /// The operators that wait for their last operand.
    chains: [Chain; Precedence::COUNT],
    /// How deep the operand is that is being read.
    operand: usize,
    has_operand: bool,
    /// Whether a sign is in front of it; two of the same cancel each other out.
    has_odd_signs: bool,
    /// How deep the entries are that commas have ended.
    entries: usize,
}

/// Operators of one precedence one after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    operators: usize,
    deepest_operand: usize,
}

impl BracketGroup {
    fn push_infix(&mut self, precedence: Precedence) {
        let operand = self.take_operand(precedence as usize + 1);
        let chain = &mut self.chains[precedence as usize];
        chain.operators += 1;
        chain.deepest_operand = max(chain.deepest_operand, operand);
    }

    /// Ends one of the results of a condition.
    fn end_branch(&mut self) {
        let operand = self.take_operand(Precedence::Or as usize);
        let chain = &mut self.chains[Precedence::Condition as usize];
        chain.deepest_operand = max(chain.deepest_operand, operand);
    }

    fn end_entry(&mut self) {
        let entry = self.take_operand(0);
        self.entries = max(self.entries, entry);
    }

    fn depth(&mut self) -> usize {
        self.end_entry();
        self.entries
    }

    /// How deep the operand is that ends here, with all operators that bind more strongly than `first`.
    fn take_operand(&mut self, first: usize) -> usize {
        let operand = self.operand + usize::from(self.has_odd_signs);
        (self.operand, self.has_operand, self.has_odd_signs) = (0, false, false);
        let chains = self.chains.iter_mut().enumerate().skip(first).rev();
        chains.fold(operand, |operand, (index, chain)| std::mem::take(chain).depth(index, operand))
    }
}

impl Chain {
    /// How deep the tree of the chain is that ends with this operand.
    fn depth(self, precedence: usize, last_operand: usize) -> usize {
        let is_balanced = [Precedence::Or as usize, Precedence::And as usize].contains(&precedence);
        let levels = if is_balanced {
            // The parser makes a balanced tree of them.
            (self.operators + 1).next_power_of_two().ilog2() as usize
        } else {
            self.operators
        };
        levels + max(self.deepest_operand, last_operand)
    }
}
