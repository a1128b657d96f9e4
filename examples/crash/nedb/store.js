// NeDB (@seald-io/nedb) as a writer and a reader: store write|read DIR default
const Datastore = require('@seald-io/nedb')

const main = async (what, directory) => {
  const db = new Datastore({ filename: `${directory}/items.db` })
  await db.loadDatabaseAsync()
  const items = await db.findAsync({}).sort({ number: 1 })
  if (what === 'read') for (const { number } of items) console.log(number)
  for (let number = items.length + 1; what === 'write'; number++) {
    await db.insertAsync({ number })
    console.log(number)
  }
}

main(...process.argv.slice(2))
