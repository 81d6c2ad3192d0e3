//! Expressions that are nested deeply: what the limits allow is compiled and evaluated on the stack of
//! an ordinary thread, and what they do not allow is refused there.

use std::thread;

use ginnel_policy::expression::{Expression, LENGTH};
use ginnel_policy::{Phase, Policy, Scope};

use cel::common::types::CelInt;
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use serde_json::json;

/// Half of what threads have unless they ask for more: the other half is for their callers.
const STACK_BYTES: usize = 1 << 20;

/// An expression that is nested so often, and how often that is allowed.
struct Shape {
    name: &'static str,
    source: fn(usize) -> String,
    limit: usize,
}

/// `open` and `close` so often around an operand.
fn around(open: &str, operand: &str, close: &str, times: usize) -> String {
    format!("{}{operand}{}", open.repeat(times), close.repeat(times))
}

const SHAPES: &[Shape] = &[
    Shape { name: "groups", source: |n| around("(", "true", ")", n), limit: 64 },
    Shape { name: "lists", source: |n| around("[", "1", "]", n), limit: 64 },
    Shape { name: "maps", source: |n| around("{1:", "1", "}", n), limit: 64 },
    Shape { name: "calls", source: |n| around("string(", "1", ")", n), limit: 64 },
    Shape { name: "indexes", source: |n| around("[1][", "0", "]", n), limit: 64 },
    Shape { name: "methods", source: |n| around("'a'.replace('b', ", "'c'", ")", n), limit: 64 },
    Shape { name: "not", source: |n| format!("{}true", "!".repeat(n)), limit: 512 },
    Shape { name: "minus", source: |n| format!("{}1", "-".repeat(n)), limit: 512 },
    Shape { name: "spaced signs", source: |n| format!("{}true", "! ".repeat(n)), limit: 512 },
    Shape { name: "conditions", source: |n| format!("{}1", "true?1:".repeat(n)), limit: 95 },
    Shape { name: "names", source: |n| format!("vars{}", ".a".repeat(n)), limit: 128 },
    Shape { name: "sums", source: |n| format!("1{}", "+1".repeat(n)), limit: 128 },
    Shape { name: "products", source: |n| format!("1{}", "*1".repeat(n)), limit: 128 },
    Shape { name: "differences", source: |n| format!("1{}", "-1".repeat(n)), limit: 128 },
    Shape { name: "relations", source: |n| format!("1{}", "==1".repeat(n)), limit: 128 },
    Shape { name: "entries", source: |n| format!("[1]{}", "[0]".repeat(n)), limit: 127 },
    Shape { name: "and", source: |n| format!("true{}", "&&true".repeat(n)), limit: 682 },
    Shape { name: "or", source: |n| format!("false{}", "||true".repeat(n)), limit: 681 },
    Shape { name: "list entries", source: |n| format!("[1{}]", ",1".repeat(n)), limit: 2046 },
    Shape { name: "both", source: |n| around("(1+", "1", ")", n), limit: 64 },
    Shape { name: "unclosed", source: |n| "(".repeat(n), limit: 0 },
    Shape { name: "unclosed conditions", source: |n| "true?".repeat(n), limit: 0 },
];

fn on_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap().join().unwrap()
}

/// A resolver for which every name is a number.
struct One(CelInt);

impl VariableResolver for One {
    fn resolve<'b>(&'b self, _: &str) -> Option<CowVal<'b, 'b>> {
        Some(CowVal::Borrowed(&self.0))
    }
}

/// The message of the refusal, if there is one; what is compiled is evaluated, too.
fn refusal(source: String) -> Option<String> {
    on_small_stack(move || {
        let compiled = Expression::compile(&source, Phase::Response);
        if let Ok(expression) = &compiled {
            drop(expression.clone().evaluate(&One(1.into())));
        }
        compiled.err().map(|error| error.message)
    })
}

#[test]
fn what_the_limits_allow_is_compiled_on_an_ordinary_stack() {
    for Shape { name, source, limit } in SHAPES {
        for times in [*limit, limit / 2, limit / 3].into_iter().filter(|times| *times > 0) {
            assert_eq!(refusal(source(times)), None, "{times} {name}");
        }
    }
}

#[test]
fn what_the_limits_do_not_allow_is_refused_on_an_ordinary_stack() {
    for Shape { name, source, limit } in SHAPES {
        let longest = (1..=LENGTH).rev().find(|times| source(*times).len() <= LENGTH).unwrap();
        let too_many = [limit + 1, limit + 2, 2 * limit + 100, longest];
        for times in too_many.into_iter().filter(|times| times > limit) {
            assert!(refusal(source(times)).is_some(), "{times} {name}");
        }
    }
}

#[test]
fn many_operators_in_many_brackets_are_compiled_on_an_ordinary_stack() {
    let mixed = |brackets: usize, operators: usize| {
        let (open, close) = ("string(", format!("{})", "+'1'".repeat(operators)));
        around(open, "1", &close, brackets)
    };

    assert_eq!(refusal(mixed(60, 1)), None);
    assert_eq!(refusal(mixed(9, 12)), None);
    for (brackets, operators) in [(64, 14), (40, 20), (20, 45), (4, 240)] {
        assert!(refusal(mixed(brackets, operators)).is_some(), "{operators} in {brackets}");
    }
}

#[test]
fn brackets_and_operators_in_texts_and_comments_are_no_levels() {
    let many = "((([[[{{{+-*!?:".repeat(60);
    for source in [
        format!("'{many}' == ''"),
        format!("r\"{many}\\\" == ''"),
        format!("'''{many}\n'\n''' == ''"),
        format!("b'\\'{many}\\x41' == b''"),
        format!("true // {many}"),
    ] {
        assert_eq!(refusal(source.clone()), None, "{source}");
    }
}

#[test]
fn what_the_parser_would_read_behind_a_broken_text_is_not_overlooked() {
    let many = "(".repeat(3000);
    for text in ["'\n", "'\\q", "\"", "'''", "'\\x4", "b'\\400"] {
        let message = refusal(format!("{text}{many}")).unwrap();
        assert!(
            message.contains("begins no valid text") || message.contains("brackets"),
            "{message}"
        );
    }
}

#[test]
fn the_refusal_names_the_field_the_limit_and_the_number() {
    let refusal_of = |source: String| {
        let document =
            json!({"inbound": [{"expressions": [source], "actions": [{"type": "deny"}]}]});
        let problems =
            on_small_stack(move || Policy::compile(&document, Scope::HttpsRoute).unwrap_err());
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };

    for (source, message) in [
        ("(".repeat(65), "65 brackets inside one another: at most 64 are allowed"),
        (format!("1{} == 1", "+1".repeat(200)), "201 levels of nesting: at most 128 are allowed"),
        (
            format!("{}true", "!".repeat(513)),
            "513 signs after one another: at most 512 are allowed",
        ),
        ("1".repeat(4097), "4097 bytes: at most 4096 are allowed"),
    ] {
        assert_eq!(refusal_of(source), [format!("inbound[0].expressions[0]: {message}")]);
    }
}
