//! Rewrites an expression so that it can be evaluated safely and fast.
//!
//! - Functions that read the request become functions of a variable.
//! - Literal patterns of `matches` are compiled here, once.
//! - Functions whose result can outgrow their arguments, and loops, pay for what they use: see
//!   [`budget`](super::budget).
//!
//! A name that starts with `@` cannot be written in an expression, so none of these names can be
//! called from a document.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, operators};

use super::super::secrets::{self, SecretName};
use super::pattern::CompiledPattern;
use super::tree::{
    call_node, count_nodes, integer_node, is_binding, qualified_name, string_literal, string_node,
    variable_node, wrap_in_call,
};
use super::{ExpressionError, ExpressionResult};

/// How many patterns an expression may hold.
const PATTERNS: usize = 10;

/// How many secrets an expression may read.
const SECRETS: usize = 20;

/// How many of them may be large: such a one takes a millisecond to compile, and a megabyte.
const LARGE_PATTERNS: usize = 3;

/// A function that reads the request: its name, the function it becomes, and the variable that is
/// the first argument there.
const READERS: &[(&str, &str, &str)] = &[
    ("getReqHeader", "@header", "req.headers"),
    ("hasReqHeader", "@has_header", "req.headers"),
    ("getResHeader", "@header", "res.headers"),
    ("hasResHeader", "@has_header", "res.headers"),
    ("getQueryParam", "@entry", "req.url.query_params"),
    ("hasQueryParam", "@has_entry", "req.url.query_params"),
    ("getReqCookie", "@cookie", "req.cookies"),
    ("hasReqCookie", "@has_entry", "req.cookies"),
    ("getResCookie", "@response_cookie", "res.cookies"),
    ("hasResCookie", "@has_entry", "res.cookies"),
];

/// Functions that are ours under their usual names: the name, the number of arguments with the
/// receiver, and the function it becomes.
const REPLACED: &[(&str, usize, &str)] = &[
    ("matches", 2, "@matches"),
    ("replace", 3, "@replace"),
    ("replace", 4, "@replace"),
    ("join", 1, "@join"),
    ("join", 2, "@join"),
    ("lists.range", 1, "@numbers"),
];

/// Functions that pay for their arguments, since their result may be longer than these.
const PAYING: &[&str] = &[
    "format",
    "strings.quote",
    "base64.encode",
    "encodeBase64",
    "base64.decode",
    "decodeBase64",
    "json.encode",
    "encodeJson",
    "json.decode",
    "decodeJson",
    "queryString.encode",
    "encodeQueryString",
    "queryString.decode",
    "decodeQueryString",
    "url.escape",
    "escapeUrl",
    "basic_auth.encode",
    "split",
];

const ARITHMETIC: &[&str] = &[
    operators::ADD,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
];

/// What a tree refers to, by number.
pub(super) struct Lowered {
    pub patterns: Vec<CompiledPattern>,
    pub secrets: Vec<SecretName>,
}

/// Rewrites the tree in place and returns what it refers to.
pub(super) fn lower_tree(tree: &mut IdedExpr) -> ExpressionResult<Lowered> {
    let mut state = Lowering { patterns: Vec::new(), secrets: Vec::new(), large: 0, loops: 0 };
    lower_node(tree, &mut state)?;
    Ok(Lowered { patterns: state.patterns, secrets: state.secrets })
}

/// What an expression calls its secret number `index`.
fn secret_name(index: usize) -> String {
    format!("@secret{index}")
}

/// The number in a name that [`secret_name`] made.
pub(super) fn secret_index(name: &str) -> Option<usize> {
    name.strip_prefix("@secret")?.parse().ok()
}

struct Lowering {
    patterns: Vec<CompiledPattern>,
    secrets: Vec<SecretName>,
    /// How many patterns are large.
    large: usize,
    /// How many loops are around the node.
    loops: usize,
}

impl Lowering {
    /// A list or map in a loop copies its entries at every step; `map` and `filter` make such lists.
    fn pay_in_loop(&self, entry: &mut IdedExpr) {
        if self.loops > 0 && !matches!(entry.expr, Expr::Literal(_)) {
            wrap_in_call(entry, "@pay");
        }
    }

    /// Compiles the pattern among the arguments of `matches`, if it is a literal.
    fn compile_pattern(&mut self, arguments: &mut [IdedExpr]) -> ExpressionResult<()> {
        let Some(argument) = arguments.last_mut() else { return Ok(()) };
        let Some(source) = string_literal(argument) else { return Ok(()) };
        if self.patterns.len() == PATTERNS {
            let message = format!("more than {PATTERNS} regular expressions");
            return Err(ExpressionError::invalid_expression(message));
        }
        let pattern = match CompiledPattern::compile_small(source)? {
            Some(pattern) => pattern,
            None => self.compile_large(source)?,
        };
        self.patterns.push(pattern);
        *argument =
            variable_node(argument.id, &CompiledPattern::variable_name(self.patterns.len() - 1));
        Ok(())
    }

    /// The number of the secret that these arguments name. Which one it is must be known now: what
    /// names a secret keeps it from being removed.
    fn register_secret(&mut self, arguments: &[IdedExpr]) -> ExpressionResult<usize> {
        let [vault, name] = arguments else {
            let message = "secrets.get takes two texts: a vault and a secret";
            return Err(ExpressionError::invalid_expression(message));
        };
        let Some((vault, name)) = string_literal(vault).zip(string_literal(name)) else {
            let message = "secrets.get takes two texts in quotes, so that it is known which secret \
                           the policy reads";
            return Err(ExpressionError::invalid_expression(message));
        };
        if let Some(other) = [vault, name].into_iter().find(|name| !secrets::is_name(name)) {
            let message = format!("secrets.get: {other:?} is no name of a vault or a secret");
            return Err(ExpressionError::invalid_expression(message));
        }
        let read = SecretName { vault: vault.to_owned(), name: name.to_owned() };
        if let Some(index) = self.secrets.iter().position(|known| *known == read) {
            return Ok(index);
        }
        if self.secrets.len() == SECRETS {
            return Err(ExpressionError::invalid_expression(format!(
                "more than {SECRETS} secrets"
            )));
        }
        self.secrets.push(read);
        Ok(self.secrets.len() - 1)
    }

    fn compile_large(&mut self, source: &str) -> ExpressionResult<CompiledPattern> {
        if self.large == LARGE_PATTERNS {
            let message = format!("more than {LARGE_PATTERNS} large regular expressions");
            return Err(ExpressionError::invalid_expression(message));
        }
        self.large += 1;
        CompiledPattern::compile(source)
    }
}

fn lower_node(node: &mut IdedExpr, state: &mut Lowering) -> ExpressionResult<()> {
    match &mut node.expr {
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                lower_node(target, state)?;
            }
            lower_all(&mut call.args, state)?;
            lower_call(node, state)
        }
        Expr::Select(select) => lower_node(&mut select.operand, state),
        Expr::List(list) => {
            lower_all(&mut list.elements, state)?;
            list.elements.iter_mut().for_each(|element| state.pay_in_loop(element));
            Ok(())
        }
        Expr::Map(map) => lower_entries(&mut map.entries, state),
        Expr::Comprehension(comprehension) => lower_loop(comprehension, state),
        _ => Ok(()),
    }
}

fn lower_all(nodes: &mut [IdedExpr], state: &mut Lowering) -> ExpressionResult<()> {
    nodes.iter_mut().try_for_each(|node| lower_node(node, state))
}

fn lower_entries(entries: &mut [IdedEntryExpr], state: &mut Lowering) -> ExpressionResult<()> {
    entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
        EntryExpr::MapEntry(entry) => {
            lower_node(&mut entry.key, state)?;
            lower_node(&mut entry.value, state)?;
            state.pay_in_loop(&mut entry.value);
            Ok(())
        }
        EntryExpr::StructField(field) => lower_node(&mut field.value, state),
    })
}

fn lower_loop(comprehension: &mut ComprehensionExpr, state: &mut Lowering) -> ExpressionResult<()> {
    lower_node(&mut comprehension.iter_range, state)?;
    lower_node(&mut comprehension.accu_init, state)?;
    if is_binding(comprehension) {
        return lower_node(&mut comprehension.result, state);
    }
    state.loops += 1;
    lower_node(&mut comprehension.loop_step, state)?;
    state.loops -= 1;
    let size = count_nodes(&comprehension.loop_step);
    // An error ends a loop, except that of `all` and of `exists`, which have such a condition.
    if !matches!(comprehension.loop_cond.expr, Expr::Literal(_)) {
        wrap_in_call(&mut comprehension.loop_cond, "@step");
    }
    let range = std::mem::take(&mut comprehension.iter_range);
    let id = range.id;
    comprehension.iter_range = call_node(id, "@range", vec![range, integer_node(id, size)]);
    Ok(())
}

fn lower_call(node: &mut IdedExpr, state: &mut Lowering) -> ExpressionResult<()> {
    let id = node.id;
    let Expr::Call(function) = &mut node.expr else { return Ok(()) };
    if reads_secret(function) {
        let index = state.register_secret(&function.args)?;
        *node = variable_node(id, &secret_name(index));
        return Ok(());
    }
    let name = full_name(function);
    if state.loops > 0 {
        pay_for_operands(function);
    }
    if name == "getMilliseconds" {
        // The engine counts all of a duration; CEL asks for those beyond its whole seconds.
        let whole = std::mem::take(node);
        *node = call_node(id, operators::MODULO, vec![whole, integer_node(id, 1000)]);
        return Ok(());
    }
    if name == "split" && function.args.is_empty() {
        function.args.push(string_node(id, " "));
    }
    if let Some((_, reader, source)) = find_reader(function) {
        let arguments = std::mem::take(&mut function.args);
        let arguments = std::iter::once(variable_node(id, source)).chain(arguments).collect();
        *node = call_node(id, reader, arguments);
        return Ok(());
    }
    if PAYING.contains(&name.as_str()) {
        pay_for_arguments(function);
        return Ok(());
    }
    let is_method = function.target.is_some() && !name.contains('.');
    let count = function.args.len() + usize::from(is_method);
    let Some((_, _, ours)) = REPLACED.iter().find(|it| it.0 == name && it.1 == count) else {
        return Ok(());
    };
    let receiver = function.target.take().filter(|_| is_method);
    let mut arguments: Vec<_> = receiver.map(|receiver| *receiver).into_iter().collect();
    arguments.append(&mut function.args);
    if *ours == "@matches" {
        state.compile_pattern(&mut arguments)?;
    }
    *node = call_node(id, ours, arguments);
    Ok(())
}

/// Whether it is `secrets.get(…)`, which is read as a method of a variable `secrets`.
fn reads_secret(call: &CallExpr) -> bool {
    call.func_name == "get"
        && call.target.as_deref().and_then(qualified_name).as_deref() == Some("secrets")
}

fn find_reader(call: &CallExpr) -> Option<&'static (&'static str, &'static str, &'static str)> {
    if call.target.is_some() || call.args.len() != 1 {
        return None;
    }
    READERS.iter().find(|(name, ..)| *name == call.func_name)
}

/// `lists.range` for `lists.range(3)`, which is read as a method of a variable `lists`.
fn full_name(call: &CallExpr) -> String {
    const SPACES: &[&str] =
        &["base64", "basic_auth", "json", "lists", "queryString", "strings", "url"];
    match call.target.as_deref().and_then(qualified_name) {
        Some(space) if SPACES.contains(&space.as_str()) => format!("{space}.{}", call.func_name),
        _ => call.func_name.clone(),
    }
}

/// In a loop, operators pay as well: `in` for the list it looks through, and arithmetic for lists
/// that it would copy into the error that it fails with.
fn pay_for_operands(call: &mut CallExpr) {
    match (call.func_name.as_str(), call.args.as_mut_slice()) {
        (operators::IN, [_, container]) if !matches!(container.expr, Expr::List(_)) => {
            wrap_in_call(container, "@search");
        }
        (_, [first, _]) if is_accumulator(first) => {}
        (name, operands) if ARITHMETIC.contains(&name) => {
            let computed = |it: &&mut IdedExpr| !matches!(it.expr, Expr::Literal(_));
            operands.iter_mut().filter(computed).for_each(|operand| wrap_in_call(operand, "@pay"));
        }
        _ => {}
    }
}

fn is_accumulator(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name.starts_with('@'))
}

fn pay_for_arguments(call: &mut CallExpr) {
    call.args.iter_mut().for_each(|argument| wrap_in_call(argument, "@pay"));
    let target = call.target.as_deref_mut();
    if let Some(target) = target.filter(|target| !matches!(target.expr, Expr::Ident(_))) {
        wrap_in_call(target, "@pay");
    }
}
