//! Curves: what was measured at each size, beside what it is to reach.

use serde_json::{Value, json};

/// What a figure is to reach at every size.
#[derive(Clone, Copy)]
pub enum Goal {
    /// No more than this.
    AtMost(f64),
    /// This much of the first figure above or below it.
    Flat(f64),
    /// It is recorded.
    None,
}

/// One figure at each size.
struct Curve {
    name: String,
    unit: &'static str,
    goal: Goal,
    points: Vec<(usize, f64)>,
}

/// The curves of one part, in the order in which they were first measured.
pub struct Part {
    name: &'static str,
    curves: Vec<Curve>,
}

impl Part {
    pub fn new(name: &'static str) -> Self {
        Self { name, curves: Vec::new() }
    }

    /// Adds a point to the curve of that name.
    pub fn add(&mut self, name: &str, unit: &'static str, goal: Goal, size: usize, figure: f64) {
        eprintln!("{} {size}: {name}: {figure:.4} {unit}", self.name);
        match self.curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((size, figure)),
            None => {
                let points = vec![(size, figure)];
                self.curves.push(Curve { name: name.to_owned(), unit, goal, points });
            }
        }
    }

    /// A table in markdown; what misses its goal is bold.
    pub fn table(&self) -> String {
        let mut sizes: Vec<usize> = Vec::new();
        for (size, _) in self.curves.iter().flat_map(|curve| &curve.points) {
            if !sizes.contains(size) {
                sizes.push(*size);
            }
        }
        sizes.sort_unstable();
        let heads: Vec<_> = sizes.iter().map(|size| thousands(*size)).collect();
        let mut lines = vec![
            format!("| {} | unit | goal | {} |", self.name, heads.join(" | ")),
            format!("| --- | --- | --- |{}", " ---: |".repeat(sizes.len())),
        ];
        for curve in &self.curves {
            let cells: Vec<_> = sizes.iter().map(|size| curve.cell(*size)).collect();
            let goal = curve.goal.text();
            lines.push(format!(
                "| {} | {} | {goal} | {} |",
                curve.name,
                curve.unit,
                cells.join(" | ")
            ));
        }
        lines.join("\n")
    }

    pub fn json(&self) -> Value {
        let curves = self.curves.iter().map(|curve| {
            let points: Vec<_> =
                curve.points.iter().map(|(size, figure)| json!([size, figure])).collect();
            let goal = curve.goal.text();
            json!({"name": curve.name, "unit": curve.unit, "goal": goal, "points": points})
        });
        json!({"part": self.name, "curves": curves.collect::<Vec<_>>()})
    }
}

impl Curve {
    fn cell(&self, size: usize) -> String {
        let Some((_, figure)) = self.points.iter().find(|(at, _)| *at == size) else {
            return String::new();
        };
        let text = rounded(*figure);
        if self.reaches(*figure) { text } else { format!("**{text}**") }
    }

    fn reaches(&self, figure: f64) -> bool {
        match self.goal {
            Goal::AtMost(most) => figure <= most,
            Goal::Flat(share) => {
                let first = self.points[0].1;
                (figure / first - 1.0).abs() <= share
            }
            Goal::None => true,
        }
    }
}

impl Goal {
    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {}", rounded(most)),
            Self::Flat(share) => format!("± {:.0} %", share * 100.0),
            Self::None => String::new(),
        }
    }
}

/// Three digits, and all those before the point.
fn rounded(figure: f64) -> String {
    let decimals = match figure.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{figure:.decimals$}");
    let is_whole = text.contains('.') && figure.fract() == 0.0;
    let text = if is_whole { format!("{figure:.0}") } else { text };
    match text.parse::<usize>() {
        Ok(whole) => thousands(whole),
        Err(_) => text,
    }
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}
