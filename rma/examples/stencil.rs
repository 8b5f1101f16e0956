//! Heat on a square plate that is cut into tiles, one for each rank: in each step a rank puts the edges of its
//! tile into the windows of its four neighbours. It is done twice, between two fences, where all ranks wait for
//! each other, and with post, start, complete and wait, where only neighbours do. The results are the same, to
//! the bit, as that of the whole plate, which every rank computes as well.
//!
//! `rmarun -n 4 target/debug/examples/stencil`

use rma::{Blocks, Epoch, Group, Job, Rank, Window};

/// Cells along the edge of a tile.
const EDGE: usize = 12;

/// A row of a window: a tile with a frame of one cell, where the neighbours put their edges.
const WIDTH: usize = EDGE + 2;

const STEPS: usize = 20;

/// The neighbours of a tile.
#[derive(Clone, Copy)]
enum Side {
    North,
    South,
    West,
    East,
}

const SIDES: [Side; 4] = [Side::North, Side::South, Side::West, Side::East];

impl Side {
    /// How a tile's place differs from its neighbour's: rows, columns.
    fn step(self) -> (isize, isize) {
        match self {
            Self::North => (-1, 0),
            Self::South => (1, 0),
            Self::West => (0, -1),
            Self::East => (0, 1),
        }
    }

    /// The first cell of a tile along this side, and the first of a frame where a neighbour puts such cells: its
    /// frame is on the other side.
    fn edge_and_frame(self) -> (usize, usize) {
        let at = |row, column| row * WIDTH + column;
        match self {
            Self::North => (at(1, 1), at(EDGE + 1, 1)),
            Self::South => (at(EDGE, 1), at(0, 1)),
            Self::West => (at(1, 1), at(1, EDGE + 1)),
            Self::East => (at(1, EDGE), at(1, 0)),
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

/// What a rank needs for its steps.
struct Part {
    plate: Plate,
    rank: usize,
    /// Cells along the north and the south: in a row. Along the west and the east: in a column.
    row: Blocks<f64>,
    column: Blocks<f64>,
    neighbours: Group,
}

impl Part {
    fn new(job: &Job) -> rma::Result<Self> {
        let (plate, rank) = (Plate::of(job.size() as usize), job.rank().0 as usize);
        let neighbours: Vec<Rank> =
            SIDES.into_iter().filter_map(|side| plate.neighbour(rank, side)).collect();
        Ok(Self {
            plate,
            rank,
            row: Blocks::row(EDGE)?,
            column: Blocks::vector(EDGE, 1, WIDTH as isize)?,
            neighbours: job.group(&neighbours)?,
        })
    }

    /// The plate's row and column of the tile's first cell.
    fn place(&self) -> (usize, usize) {
        (self.rank / self.plate.columns * EDGE, self.rank % self.plate.columns * EDGE)
    }

    /// The tile at the beginning, in a cold frame.
    fn begin(&self) -> Vec<f64> {
        let (top, left) = self.place();
        let mut cells = vec![0.0; WIDTH * WIDTH];
        for at in 0..EDGE * EDGE {
            let (row, column) = (at / EDGE, at % EDGE);
            cells[(row + 1) * WIDTH + column + 1] = initial(top + row, left + column);
        }
        cells
    }

    /// Puts the edges of the tile into the frames of the neighbours, in whatever epoch.
    fn put_edges<'scope>(&self, epoch: &Epoch<'scope, '_, f64>, cells: &'scope [f64]) -> rma::Result<()> {
        for side in SIDES {
            let Some(neighbour) = self.plate.neighbour(self.rank, side) else { continue };
            let (edge, frame) = side.edge_and_frame();
            let blocks = match side {
                Side::North | Side::South => &self.row,
                Side::West | Side::East => &self.column,
            };
            epoch.put_blocks(neighbour, frame as u64, blocks, &cells[edge..], blocks)?;
        }
        Ok(())
    }

    fn with_fence(&self, window: &Window<f64>, cells: &[f64]) -> rma::Result<()> {
        window.fence(|epoch| self.put_edges(epoch, cells))
    }

    fn with_pscw(&self, window: &Window<f64>, cells: &[f64]) -> rma::Result<()> {
        // "My frame may be written"; the neighbours' puts wait for it.
        let exposure = window.post(&self.neighbours)?;
        window.start(&self.neighbours, |epoch| self.put_edges(epoch, cells))?;
        // Now the neighbours' edges are here.
        exposure.wait()
    }

    /// All steps; the tile after them, in its frame.
    fn run(
        &self,
        window: &Window<f64>,
        exchange: impl Fn(&Window<f64>, &[f64]) -> rma::Result<()>,
    ) -> rma::Result<Vec<f64>> {
        window.local().fill(0.0)?;
        // Nobody puts into a frame before it is cold.
        window.job().barrier()?;
        let mut cells = self.begin();
        for _ in 0..STEPS {
            exchange(window, &cells)?;
            let frame = window.local().to_vec()?;
            cells = step_tile(&cells, &frame);
        }
        Ok(cells)
    }
}

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let part = Part::new(&job)?;
    let window = job.allocate::<f64>(WIDTH * WIDTH)?;
    let fenced = part.run(&window, |window, cells| part.with_fence(window, cells))?;
    job.barrier()?;
    let started = part.run(&window, |window, cells| part.with_pscw(window, cells))?;
    assert_eq!(fenced, started, "both kinds of epochs");

    let (expected, (top, left)) = (whole_plate(part.plate), part.place());
    for at in 0..EDGE * EDGE {
        let (row, column) = (at / EDGE, at % EDGE);
        let expected = expected[(top + row) * part.plate.columns * EDGE + left + column];
        assert_eq!(fenced[(row + 1) * WIDTH + column + 1], expected, "rank {}, cell {at}", part.rank);
    }
    println!("rank {}: {} cells are as they must be after {STEPS} steps", part.rank, EDGE * EDGE);
    window.free()?;
    job.finalize()
}

/// The next state of a tile, whose frame is what the neighbours have put into the window.
fn step_tile(cells: &[f64], frame: &[f64]) -> Vec<f64> {
    let is_inside = |at: usize| (1..=EDGE).contains(&(at / WIDTH)) && (1..=EDGE).contains(&(at % WIDTH));
    let cell = |at: usize| if is_inside(at) { cells[at] } else { frame[at] };
    let step = |at: usize| match is_inside(at) {
        true => next(cells[at], [cell(at - WIDTH), cell(at + WIDTH), cell(at - 1), cell(at + 1)]),
        false => 0.0,
    };
    (0..WIDTH * WIDTH).map(step).collect()
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
