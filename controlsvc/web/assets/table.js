// Tables and the like that come anew every second: what is there already stays where it is, and only what differs is touched, so
// that where somebody has scrolled to, what is selected and what has the focus stay.

// Writes a text, as text, where it differs.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Has an element hold a child for each item, in their order. An item is known again by what id gives, which no other may have.
// make gives the child of an item that is new, and fill shows an item in its child.
export function keep(parent, items, id, make, fill) {
  const {anchorNode, focusNode} = getSelection();
  const before = new Map([...parent.children].map((child) => [child.dataset.id, child]));
  const children = items.map((item) => {
    const name = id(item), child = before.get(name) ?? make(item);
    before.delete(name);
    child.dataset.id = name;
    fill(child, item);
    return child;
  });
  for (const gone of before.values()) gone.remove();
  children.forEach((child, i) => {
    // A child that is moved loses what is selected in it: one where the selection begins or ends stays, and the others make way.
    if (child.contains(anchorNode) || child.contains(focusNode)) {
      while (parent.children[i] !== child) parent.append(parent.children[i]);
    }
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild.remove(); // of items that go by one name
}

function cell(kind, scope, column, text) {
  const cell = document.createElement(kind);
  if (scope) cell.scope = scope;
  if (column.number) cell.className = 'number';
  cell.textContent = text;
  return cell;
}

function create(place, caption, columns, heads) {
  const table = document.createElement('table'), scroll = document.createElement('div');
  table.createTHead().insertRow().append(...columns.map((column) => cell('th', 'col', column, column.title)));
  scroll.className = 'scroll';
  scroll.tabIndex = 0;
  scroll.setAttribute('role', 'region');
  scroll.setAttribute('aria-label', `${caption}: table`);
  scroll.append(table);
  place.dataset.heads = heads;
  place.replaceChildren(scroll);
  return table.createTBody();
}

// Has an element show a table of rows, or where there are none the text none. id tells the rows apart. columns: {title, number,
// bad, of(row)} of each, the first one heads its row.
export function list(place, caption, id, columns, rows, none) {
  if (rows.length === 0) {
    if (!place.querySelector('.hint')) {
      const p = document.createElement('p');
      p.className = 'hint';
      delete place.dataset.heads;
      place.replaceChildren(p);
    }
    write(place.firstChild, none);
    return;
  }
  const heads = columns.map((column) => column.title).join('\n');
  const body = place.dataset.heads === heads ? place.querySelector('tbody') : create(place, caption, columns, heads);
  keep(body, rows, id, () => {
    const line = document.createElement('tr');
    line.append(...columns.map((column, i) => cell(i === 0 ? 'th' : 'td', i === 0 ? 'row' : '', column, '')));
    return line;
  }, (line, row) => columns.forEach((column, i) => {
    write(line.cells[i], column.of(row));
    line.cells[i].classList.toggle('bad', column.bad?.(row) ?? false);
  }));
}
