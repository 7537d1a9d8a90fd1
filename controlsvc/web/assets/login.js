for (const why of ['wrong', 'later']) document.getElementById(why).hidden = location.search !== `?${why}`;
