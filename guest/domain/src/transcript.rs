//! The transcript of a run: the fold of both logs into one sequence. Control
//! entries stand where the worker consumed them, and those it has not yet
//! consumed stand at the end.

use crate::log::{Control, Entry, Event};

/// One entry of either log.
#[derive(Debug, Clone, PartialEq)]
pub enum Item<'a> {
    Control(&'a Entry<Control>),
    Event(&'a Entry<Event>),
}

/// Merges both logs. Order within each log is kept.
pub fn fold<'a>(control: &'a [Entry<Control>], events: &'a [Entry<Event>]) -> Vec<Item<'a>> {
    let mut out = Vec::with_capacity(control.len() + events.len());
    let mut rest = control;
    for event in events {
        if let Event::Consumed { control_seq } = event.body {
            let upto = rest.iter().take_while(|c| c.seq <= control_seq).count();
            let (consumed, left) = rest.split_at(upto);
            out.extend(consumed.iter().map(Item::Control));
            rest = left;
        }
        out.push(Item::Event(event));
    }
    out.extend(rest.iter().map(Item::Control));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Millis;
    use crate::log::Finish;

    #[test]
    fn control_entries_stand_where_they_were_consumed_and_the_rest_at_the_end() {
        let control: Vec<_> = (1..=3)
            .map(|seq| Entry {
                seq,
                at: Millis(0),
                body: Control::Steer { text: seq.to_string(), speaker: None },
            })
            .collect();
        let events: Vec<_> = [
            Event::Note { text: "first".into() },
            Event::Consumed { control_seq: 2 },
            Event::Finished(Finish::Cancelled),
        ]
        .into_iter()
        .zip(1..)
        .map(|(body, seq)| Entry { seq, at: Millis(0), body })
        .collect();
        let order: Vec<String> = fold(&control, &events)
            .iter()
            .map(|item| match item {
                Item::Control(c) => format!("c{}", c.seq),
                Item::Event(e) => format!("e{}", e.seq),
            })
            .collect();
        assert_eq!(order, ["e1", "c1", "c2", "e2", "e3", "c3"]);
    }
}
