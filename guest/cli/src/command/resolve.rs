//! Which run is meant: people type the beginning of an id.

use api::control::{Request, Response, RunSummary};
use domain::id::RunId;

use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::limits;
use crate::render::block;

/// Characters of an id that listings print at least.
pub(crate) const SHORT: usize = 8;
/// Length of a whole id: nothing needs to be looked up for it.
const WHOLE: usize = 36;
/// Candidates an ambiguity names.
const NAMED: usize = 5;

/// The run `given` names; asks the control plane only for a beginning.
pub(crate) fn run_id(session: &mut Session, given: &RunId) -> Result<RunId, Failure> {
    if given.as_str().len() == WHOLE {
        return Ok(given.clone());
    }
    let runs = runs(session, limits::RUNS_SEARCHED)?;
    resolve(given, runs.iter().map(|run| (&run.id, run.title.as_str())))
}

/// A listing.
pub(crate) fn runs(session: &mut Session, limit: usize) -> Result<Vec<RunSummary>, Failure> {
    let Response::Runs(runs) = session.ask(&Request::Runs { limit })? else {
        return Err(Failure::other_version());
    };
    Ok(runs)
}

/// The one of `known` that is `given` or begins with it.
pub(crate) fn resolve<'a>(
    given: &RunId,
    known: impl Iterator<Item = (&'a RunId, &'a str)>,
) -> Result<RunId, Failure> {
    let mut found: Vec<(&RunId, &str)> = Vec::new();
    for (id, title) in known {
        if id == given {
            return Ok(id.clone());
        }
        let begins = id.as_str().starts_with(given.as_str());
        if begins && !found.iter().any(|(other, _)| *other == id) {
            found.push((id, title));
        }
    }
    match found.as_slice() {
        [] => Err(Failure::new(
            Exit::NotFound,
            format!("there is no run {given}"),
            "list them with `sentinel runs`",
        )),
        [(only, _)] => Ok((*only).clone()),
        several => {
            let mut names: Vec<String> = several
                .iter()
                .take(NAMED)
                .map(|(id, title)| format!("{id}  {}", block::row(title, 50)))
                .collect();
            if several.len() > NAMED {
                names.push(format!("and {} more", several.len() - NAMED));
            }
            Err(Failure::usage(
                format!("{given} is the beginning of {} runs", several.len()),
                format!("type more of it:\n{}", names.join("\n")),
            ))
        }
    }
}

/// The beginnings by which a listing tells these ids apart.
pub(crate) fn short_ids(ids: &[&RunId]) -> Vec<String> {
    let unique = |length: usize, id: &RunId| {
        let head = id.as_str().get(..length).unwrap_or(id.as_str());
        !ids.iter().any(|other| *other != id && other.as_str().starts_with(head))
    };
    ids.iter()
        .map(|id| {
            let whole = id.as_str().len();
            let length = (SHORT..whole).find(|length| unique(*length, id)).unwrap_or(whole);
            id.as_str().get(..length).unwrap_or(id.as_str()).to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RunId {
        RunId::new(text).unwrap()
    }

    fn resolved(given: &str, known: &[&str]) -> Result<String, Failure> {
        let known: Vec<RunId> = known.iter().map(|text| id(text)).collect();
        resolve(&id(given), known.iter().map(|id| (id, "a title"))).map(|id| id.to_string())
    }

    #[test]
    fn a_beginning_that_only_one_run_has_is_enough() {
        assert_eq!(resolved("5f0", &["5f0c1e9e", "a1b2"]).unwrap(), "5f0c1e9e");
    }

    #[test]
    fn a_whole_id_wins_over_longer_ones_that_begin_with_it() {
        assert_eq!(resolved("a1", &["a1b2", "a1", "a1c3"]).unwrap(), "a1");
    }

    #[test]
    fn one_run_listed_twice_is_not_ambiguous() {
        assert_eq!(resolved("5f", &["5f0c", "5f0c"]).unwrap(), "5f0c");
    }

    #[test]
    fn an_unknown_run_is_not_found() {
        for given in ["zz", "5f0c1e9e0", "F"] {
            assert_eq!(resolved(given, &["5f0c1e9e"]).unwrap_err().exit, Exit::NotFound);
        }
    }

    #[test]
    fn an_ambiguous_beginning_lists_who_has_it() {
        let known: Vec<String> = (0..7).map(|n| format!("5f0c{n}")).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let failure = resolved("5f", &known).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        insta::assert_snapshot!(failure.lines().join("\n"), @r"
        sentinel: 5f is the beginning of 7 runs
          type more of it:
          5f0c0  a title
          5f0c1  a title
          5f0c2  a title
          5f0c3  a title
          5f0c4  a title
          and 2 more
        ");
    }

    #[test]
    fn short_ids_are_as_long_as_it_takes_to_tell_them_apart() {
        let ids = [
            "5f0c1e9e-7c0a-4c5e-9d5e-0a1b2c3d4e5f",
            "5f0c1e9e-7c0b-4c5e-9d5e-0a1b2c3d4e5f",
            "aaaaaaaa-7c0b-4c5e-9d5e-0a1b2c3d4e5f",
            "aaaaaaaa-7c0b-4c5e-9d5e-0a1b2c3d4e5f",
            "a1b2",
        ]
        .map(id);
        let ids: Vec<&RunId> = ids.iter().collect();
        assert_eq!(
            short_ids(&ids),
            ["5f0c1e9e-7c0a", "5f0c1e9e-7c0b", "aaaaaaaa", "aaaaaaaa", "a1b2"]
        );
    }
}
