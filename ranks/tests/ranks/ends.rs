//! The end of a rank: the others end too, and say which one it was.

use std::{panic, thread, time::Duration};

use amalgam_ranks::Ranks;

/// The words of each rank's panic, by rank; none where it ended well.
fn ends(size: usize, work: impl Fn(Ranks) + Sync) -> Vec<Option<String>> {
    let work = &work;
    let words = |error: Box<dyn std::any::Any + Send>| match error.downcast::<String>() {
        Ok(words) => *words,
        Err(error) => error.downcast_ref::<&str>().unwrap().to_string(),
    };
    thread::scope(|scope| {
        let rank = |ranks: Ranks| scope.spawn(move || work(ranks));
        let threads: Vec<_> = Ranks::threads(size).into_iter().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().err().map(words)).collect()
    })
}

#[test]
fn a_rank_that_panics_ends_the_others() {
    let ends = ends(4, |ranks| {
        let kept = ranks.clone();
        ranks.barrier();
        assert!(ranks.rank() != 2, "a fault of this rank");
        // Rank 3 waits for the first one only, and learns of it from there.
        match ranks.rank() {
            3 => drop(ranks.await_broadcast::<u8>()),
            _ => drop(ranks.exchange(
                &[0, 1, 2][..].iter().copied().filter(|&r| r != ranks.rank()).collect::<Vec<_>>(),
                vec![vec![0u8]; 2],
            )),
        }
        drop(kept);
    });
    assert_eq!(ends[2].as_deref(), Some("a fault of this rank"));
    for rank in [0, 1, 3] {
        assert_eq!(ends[rank].as_deref(), Some("rank 2 is gone"), "rank {rank}");
    }
}

#[test]
fn a_rank_that_leaves_early_ends_those_that_need_it() {
    let ends = ends(3, |ranks| {
        if ranks.rank() == 2 {
            // The last message still arrives.
            ranks.broadcast(Vec::<u8>::new());
            ranks.gather(vec![2u8]);
            return;
        }
        assert_eq!(ranks.broadcast(vec![1u8]), [1]);
        if let Some(all) = ranks.gather(vec![ranks.rank() as u8]) {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(all, [[0], [1], [2]]);
        }
        ranks.max(&mut [1.0]);
    });
    assert_eq!(ends[2], None);
    assert_eq!(ends[0].as_deref(), Some("rank 2 is gone"));
    assert_eq!(ends[1].as_deref(), Some("rank 2 is gone"));
}

#[test]
fn a_rank_can_say_that_it_goes() {
    let ends = ends(3, |ranks| match ranks.rank() {
        1 => ranks.abandon(),
        0 => drop(ranks.gather(vec![0u8])),
        _ => drop(ranks.await_broadcast::<u8>()),
    });
    assert_eq!(ends[1], None);
    assert_eq!(ends[0].as_deref(), Some("rank 1 is gone"));
    assert_eq!(ends[2].as_deref(), Some("rank 1 is gone"));
}

#[test]
fn one_thread_alone_may_panic() {
    let result = panic::catch_unwind(|| {
        let _ranks = Ranks::alone();
        panic!("a fault");
    });
    assert!(result.is_err());
    let [ranks] = <[Ranks; 1]>::try_from(Ranks::threads(1)).unwrap();
    assert!(ranks.is_alone());
}
