//! Heat on a square plate that is cut into tiles, one for each rank: in each step a rank puts the edges of its
//! tile into the windows of its four neighbours, between two fences. Every rank computes the whole plate as
//! well, and compares.
//!
//! `rmarun -n 4 target/debug/examples/stencil`

use rma::{Job, Rank};

/// Cells along the edge of a tile.
const EDGE: usize = 12;

const STEPS: usize = 20;

/// The neighbours of a tile, in the order in which their edges lie in the window.
#[derive(Clone, Copy)]
enum Side {
    North,
    South,
    West,
    East,
}

const SIDES: [Side; 4] = [Side::North, Side::South, Side::West, Side::East];

impl Side {
    fn opposite(self) -> Self {
        match self {
            Self::North => Self::South,
            Self::South => Self::North,
            Self::West => Self::East,
            Self::East => Self::West,
        }
    }

    /// How a tile's place differs from its neighbour's: rows, columns.
    fn step(self) -> (isize, isize) {
        match self {
            Self::North => (-1, 0),
            Self::South => (1, 0),
            Self::West => (0, -1),
            Self::East => (0, 1),
        }
    }
}

/// How the tiles lie: as square as the number of ranks allows.
#[derive(Clone, Copy)]
struct Plate {
    rows: usize,
    columns: usize,
}

impl Plate {
    fn of(size: usize) -> Self {
        let rows = (1..=size).filter(|rows| size % rows == 0 && rows * rows <= size).max().unwrap_or(1);
        Self { rows, columns: size / rows }
    }

    fn neighbour(self, rank: usize, side: Side) -> Option<Rank> {
        let (down, right) = side.step();
        let row = (rank / self.columns).checked_add_signed(down).filter(|row| *row < self.rows)?;
        let column =
            (rank % self.columns).checked_add_signed(right).filter(|column| *column < self.columns)?;
        Some(Rank((row * self.columns + column) as u32))
    }
}

/// The heat of a cell of the plate at the beginning.
fn initial(row: usize, column: usize) -> f64 {
    ((row * 31 + column * 17) % 100) as f64
}

/// A cell's heat after a step; beyond the plate it is cold.
fn next(cell: f64, around: [f64; 4]) -> f64 {
    cell + 0.2 * (around.iter().sum::<f64>() - 4.0 * cell)
}

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let (rank, plate) = (job.rank().0 as usize, Plate::of(job.size() as usize));
    let (top, left) = (rank / plate.columns * EDGE, rank % plate.columns * EDGE);
    // The neighbours' edges, one side after the other; cold where there is no neighbour.
    let window = job.allocate::<f64>(4 * EDGE)?;
    let mut tile: Vec<f64> = (0..EDGE * EDGE).map(|at| initial(top + at / EDGE, left + at % EDGE)).collect();
    for _ in 0..STEPS {
        let edges = SIDES.map(|side| edge(&tile, side));
        window.fence(|epoch| {
            for (side, edge) in SIDES.into_iter().zip(&edges) {
                if let Some(neighbour) = plate.neighbour(rank, side) {
                    epoch.put(neighbour, (side.opposite() as usize * EDGE) as u64, edge)?;
                }
            }
            Ok(())
        })?;
        let halo = window.local().to_vec();
        tile = step_tile(&tile, &halo);
    }
    let expected = whole_plate(plate);
    for (at, cell) in tile.iter().enumerate() {
        let place = (top + at / EDGE) * plate.columns * EDGE + left + at % EDGE;
        assert!((cell - expected[place]).abs() < 1e-9, "rank {rank}, cell {at}: {cell}");
    }
    println!("rank {rank}: {} cells are as they must be after {STEPS} steps", tile.len());
    window.free()?;
    job.finalize()
}

/// The cells along one side of a tile.
fn edge(tile: &[f64], side: Side) -> Vec<f64> {
    let cell = |index: usize| match side {
        Side::North => index,
        Side::South => (EDGE - 1) * EDGE + index,
        Side::West => index * EDGE,
        Side::East => index * EDGE + EDGE - 1,
    };
    (0..EDGE).map(|index| tile[cell(index)]).collect()
}

fn step_tile(tile: &[f64], halo: &[f64]) -> Vec<f64> {
    let outside = |side: Side, index: usize| halo[side as usize * EDGE + index];
    let around = |row: usize, column: usize| {
        [
            if row > 0 { tile[(row - 1) * EDGE + column] } else { outside(Side::North, column) },
            if row + 1 < EDGE { tile[(row + 1) * EDGE + column] } else { outside(Side::South, column) },
            if column > 0 { tile[row * EDGE + column - 1] } else { outside(Side::West, row) },
            if column + 1 < EDGE { tile[row * EDGE + column + 1] } else { outside(Side::East, row) },
        ]
    };
    (0..EDGE * EDGE).map(|at| next(tile[at], around(at / EDGE, at % EDGE))).collect()
}

/// The same for the whole plate at once.
fn whole_plate(plate: Plate) -> Vec<f64> {
    let (rows, columns) = (plate.rows * EDGE, plate.columns * EDGE);
    let mut cells: Vec<f64> = (0..rows * columns).map(|at| initial(at / columns, at % columns)).collect();
    for _ in 0..STEPS {
        let at = |row: Option<usize>, column: Option<usize>| match (row, column) {
            (Some(row), Some(column)) if row < rows && column < columns => cells[row * columns + column],
            _ => 0.0,
        };
        let step = |place: usize| {
            let (row, column) = (place / columns, place % columns);
            let around = SIDES.map(|side| {
                let (down, right) = side.step();
                at(row.checked_add_signed(down), column.checked_add_signed(right))
            });
            next(cells[place], around)
        };
        cells = (0..rows * columns).map(step).collect();
    }
    cells
}
