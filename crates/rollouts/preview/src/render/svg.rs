//! Picture of a rollout as SVG.

use std::fmt::Write as _;

use super::{seconds, short_name};
use crate::report::{Preview, Step};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 44.0;

/// Number of fills of old ReplicaSets.
const FILLS: usize = 4;

const STYLE: &str = "\
.bg{fill:#ffffff}text{font:12px system-ui,sans-serif;fill:#1f2328}.axis{stroke:#59636e;fill:none}\
.new{fill:#1a7f37}.old0{fill:#0969da}.old1{fill:#8250df}.old2{fill:#bf3989}.old3{fill:#9a6700}\
.terminating{fill:#afb8c1}.available{stroke:#1f2328;stroke-width:2;fill:none}\
.bound{stroke:#cf222e;stroke-dasharray:6 4;fill:none}.bound-text{fill:#cf222e;\
paint-order:stroke;stroke:#fff;stroke-width:4px}\
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}text{fill:#e6edf3}.axis{stroke:#8b949e}\
.new{fill:#3fb950}.old0{fill:#58a6ff}.old1{fill:#bc8cff}.old2{fill:#ff7bcb}.old3{fill:#d29922}\
.terminating{fill:#484f58}.available{stroke:#e6edf3}.bound{stroke:#ff7b72}.bound-text{fill:#ff7b72;\
stroke:#0d1117}}";

/// Scales of the axes.
struct Scale {
    end: f64,
    top: f64,
}

impl Scale {
    fn x(&self, time: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * time / self.end
    }

    fn y(&self, pods: i32) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * f64::from(pods) / self.top
    }
}

/// Draws the pods of each ReplicaSet, stacked, over time, with the bounds and the number of available pods.
///
/// The picture has a title and a description for screen readers, and follows the colour scheme of its viewer.
pub fn svg(preview: &Preview) -> String {
    let most = preview.steps.iter().map(|step| step.pods + step.terminating).max().unwrap_or(0);
    let last = preview.steps.last().map_or(0.0, |step| step.seconds);
    let scale =
        Scale { end: (last * 1.05).max(1.0), top: f64::from(most.max(preview.bounds.max_pods).max(1)) };
    let names = names(preview);
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-labelledby=\"t d\">\n<title id=\"t\">Rollout of {}/{}</title>\n<desc id=\"d\">{}</desc>\n\
         <style>{STYLE}</style>\n<rect class=\"bg\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        escape(&preview.namespace),
        escape(&preview.name),
        escape(&description(preview)),
    );
    areas(&mut svg, preview, &names, &scale);
    lines(&mut svg, preview, &scale);
    axes(&mut svg, &scale);
    legend(&mut svg, preview, &names);
    svg.push_str("</svg>\n");
    svg
}

fn description(preview: &Preview) -> String {
    let outcome = &preview.outcome;
    let end = outcome.duration_seconds.map_or_else(
        || "does not complete".to_owned(),
        |duration| format!("complete after {}", seconds(duration)),
    );
    format!(
        "{end}; at most {} pods, at least {} available",
        outcome.most_pods.pods, outcome.fewest_available.pods
    )
}

/// Names of the ReplicaSets with their classes: old ones first, the new one last.
fn names(preview: &Preview) -> Vec<(String, String)> {
    let mut names: Vec<(bool, String)> = Vec::new();
    for set in preview.steps.iter().flat_map(|step| &step.replica_sets) {
        if !names.iter().any(|(_, name)| *name == set.name) {
            names.push((set.is_new, set.name.clone()));
        }
    }
    names.sort_by_key(|(is_new, _)| *is_new);
    let class = |(at, (is_new, name)): (usize, (bool, String))| {
        (name, if is_new { "new".to_owned() } else { format!("old{}", at % FILLS) })
    };
    names.into_iter().enumerate().map(class).collect()
}

fn areas(svg: &mut String, preview: &Preview, names: &[(String, String)], scale: &Scale) {
    let pods = |step: &Step, name: &str| {
        step.replica_sets.iter().find(|set| set.name == name).map_or(0, |set| set.pods)
    };
    for (at, (name, class)) in names.iter().enumerate() {
        let below = |step: &Step| names.iter().take(at).map(|(name, _)| pods(step, name)).sum::<i32>();
        area(svg, preview, scale, class, &below, &|step| below(step) + pods(step, name));
    }
    area(svg, preview, scale, "terminating", &|step| step.pods, &|step| step.pods + step.terminating);
}

fn area(
    svg: &mut String,
    preview: &Preview,
    scale: &Scale,
    class: &str,
    low: &dyn Fn(&Step) -> i32,
    high: &dyn Fn(&Step) -> i32,
) {
    let upper = staircase(&preview.steps, scale, high);
    let mut lower = staircase(&preview.steps, scale, low);
    lower.reverse();
    let points: Vec<String> = upper.iter().chain(&lower).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(svg, "<polygon class=\"{class}\" points=\"{}\"/>", points.join(" "));
}

/// Corners of a line that changes at each step.
fn staircase(steps: &[Step], scale: &Scale, pods: &dyn Fn(&Step) -> i32) -> Vec<(f64, f64)> {
    let ends = steps.iter().skip(1).map(|step| step.seconds).chain([scale.end]);
    let corners = steps.iter().zip(ends).flat_map(|(step, end)| {
        let y = scale.y(pods(step));
        [(scale.x(step.seconds), y), (scale.x(end), y)]
    });
    corners.collect()
}

fn lines(svg: &mut String, preview: &Preview, scale: &Scale) {
    let points: Vec<String> = staircase(&preview.steps, scale, &|step| step.available)
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(svg, "<polyline class=\"available\" points=\"{}\"/>", points.join(" "));
    if preview.bounds.strategy != "RollingUpdate" {
        return;
    }
    for (label, pods) in
        [("max pods", preview.bounds.max_pods), ("min available", preview.bounds.min_available)]
    {
        let y = scale.y(pods);
        let _ = writeln!(
            svg,
            "<path class=\"bound\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text class=\"bound-text\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{label} {pods}</text>",
            WIDTH - RIGHT,
            WIDTH - RIGHT - 4.0,
            y - 4.0
        );
    }
}

fn axes(svg: &mut String, scale: &Scale) {
    let bottom = HEIGHT - BOTTOM;
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{:.1}\"/>", WIDTH - RIGHT);
    for part in 0..=4_u8 {
        let share = f64::from(part) / 4.0;
        let time = scale.end * share;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            scale.x(time),
            bottom + 20.0,
            seconds(time)
        );
        #[expect(clippy::cast_possible_truncation, reason = "a number of pods")]
        let pods = (scale.top * share).round() as i32;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{pods}</text>",
            LEFT - 8.0,
            scale.y(pods) + 4.0
        );
    }
}

fn legend(svg: &mut String, preview: &Preview, names: &[(String, String)]) {
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"22\" font-weight=\"bold\">{}/{}: {}</text>",
        escape(&preview.namespace),
        escape(&preview.name),
        escape(&description(preview))
    );
    let mut x = LEFT;
    let sets = names.iter().map(|(name, class)| (short_name(&preview.name, name).to_owned(), class.clone()));
    for (label, class) in sets.chain([("terminating".to_owned(), "terminating".to_owned())]) {
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"34\" width=\"12\" height=\"12\"/>\
             <text x=\"{:.1}\" y=\"44\">{}</text>",
            x + 18.0,
            escape(&label)
        );
        x += 34.0 + 7.5 * label.chars().count() as f64;
    }
    let _ = writeln!(
        svg,
        "<path class=\"available\" d=\"M{x:.1} 40h16\"/><text x=\"{:.1}\" y=\"44\">available</text>",
        x + 22.0
    );
}

/// Escapes text for XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
